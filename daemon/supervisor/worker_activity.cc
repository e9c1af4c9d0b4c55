#include "daemon/supervisor/worker_activity.h"

#include <algorithm>

namespace stoker::supervisor {

void WorkerActivity::update(std::chrono::nanoseconds now, const ring::RingCounters& counters) {
  const auto passed = now - since_;
  if (is_started_ && passed < kPeriod) return;
  if (is_started_) {
    const auto threads = [&](uint64_t after, uint64_t before) {
      return static_cast<double>(after - before) / static_cast<double>(passed.count());
    };
    const double all = threads(counters.read_ns, before_.read_ns);
    busy_.decoding = threads(counters.decode_ns, before_.decode_ns);
    busy_.transforming = threads(counters.transform_ns, before_.transform_ns);
    busy_.reading = std::max(0.0, all - busy_.decoding - busy_.transforming);
    busy_.waiting = threads(counters.wait_slot_ns, before_.wait_slot_ns);
  }
  is_started_ = true;
  since_ = now;
  before_ = counters;
}

}  // namespace stoker::supervisor
