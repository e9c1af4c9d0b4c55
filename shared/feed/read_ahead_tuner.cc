#include "shared/feed/read_ahead_tuner.h"

#include <algorithm>
#include <cmath>

namespace stoker::feed {
namespace {

// One or two reads in a row that wait are chance; where reads stop to wait, a while is looked on.
constexpr double kBegin = 0.15;
constexpr double kEnd = 0.03;
constexpr double kMargin = 2;

void forget_and_add(double& mean, double value) {
  mean += (value - mean) / ReadAheadTuner::kMemory;
}

}  // namespace

void ReadAheadTuner::record_read(std::chrono::nanoseconds waited) {
  const std::lock_guard lock(mutex_);
  forget_and_add(waited_ns_, static_cast<double>(waited.count()));
  forget_and_add(waiting_, waited > kShort ? 1 : 0);
  decide();
}

void ReadAheadTuner::record_work(std::chrono::nanoseconds worked) {
  const std::lock_guard lock(mutex_);
  const auto ns = static_cast<double>(worked.count());
  if (worked_ns_ == 0) worked_ns_ = ns;
  forget_and_add(worked_ns_, ns);
  decide();
}

void ReadAheadTuner::decide() {
  const bool is_on = wanted() > 0;
  const double work = std::max(worked_ns_, 1.0);
  const bool waits = waiting_ > (is_on ? kEnd : kBegin) && waited_ns_ >= kMinShare * work;
  const double wanted = waits ? std::ceil(kMargin * workers_ * waited_ns_ / work) : 0;
  wanted_.store(static_cast<uint32_t>(std::min<double>(wanted, max_)), std::memory_order_relaxed);
}

}  // namespace stoker::feed
