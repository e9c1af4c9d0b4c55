#include "daemon/supervisor/worker_autotuner.h"

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

namespace {

constexpr uint32_t kFirst = 2;  // worker threads at the start

}  // namespace

WorkerAutotuner::WorkerAutotuner(uint32_t min, uint32_t max)
    : min_(min), max_(std::max(min, max)), wanted_(std::clamp(kFirst, min_, max_)) {}

uint32_t WorkerAutotuner::update(const Observation& observation) {
  if (!is_started_) begin_period(observation);
  occupancy_ += static_cast<double>(observation.ready) / static_cast<double>(observation.slots);
  ++observations_;
  if (observation.now - first_.now < kPeriod) return wanted_;
  if (observation.consumed > first_.consumed)
    adjust(occupancy_ / static_cast<double>(observations_));
  begin_period(observation);
  return wanted_;
}

void WorkerAutotuner::begin_period(const Observation& observation) {
  is_started_ = true;
  first_ = observation;
  occupancy_ = 0;
  observations_ = 0;
}

void WorkerAutotuner::adjust(double occupancy) {
  ++periods_since_reduction_;
  calm_ = occupancy > kHighMark ? calm_ + 1 : 0;
  if (occupancy < kLowMark && wanted_ < max_) {
    ++wanted_;
    if (periods_since_reduction_ <= patience_) patience_ = std::min(2 * patience_, kMaxCalm);
    periods_since_reduction_ = kMaxCalm;
  } else if (calm_ >= patience_ && wanted_ > min_) {
    --wanted_;
    calm_ = 0;
    periods_since_reduction_ = 0;
  }
}

}  // namespace stoker::supervisor
