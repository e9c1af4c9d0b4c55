#include "daemon/supervisor/worker_autotuner.h"

#include <algorithm>

namespace stoker::supervisor {
namespace {

constexpr uint32_t kFirst = 2;  // threads at the start

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
