// RemainingTime: the time to the end of training, from the steps of the last minutes. One interval between two records
// can be 20 ms long, and says nothing.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <deque>

namespace stoker {

class RemainingTime {
 public:
  static constexpr double kWindowSeconds = 120;

  // `steps` that took `seconds` in total, without pauses.
  void add(uint64_t steps, double seconds) {
    const Interval added{static_cast<double>(steps), seconds};
    sum_ += added;
    // Short ones are joined, so that there are few.
    if (!intervals_.empty() && intervals_.back().seconds < kWindowSeconds / 1000)
      intervals_.back() += added;
    else
      intervals_.push_back(added);
    while (sum_.seconds - intervals_.front().seconds >= kWindowSeconds) {
      sum_ -= intervals_.front();
      intervals_.pop_front();
    }
  }
  // 0 before the first step.
  double seconds(uint64_t steps) const {
    return sum_.steps > 0 ? static_cast<double>(steps) * sum_.seconds / sum_.steps : 0;
  }

 private:
  struct Interval {
    double steps = 0, seconds = 0;
    void operator+=(const Interval& other) { steps += other.steps, seconds += other.seconds; }
    void operator-=(const Interval& other) { steps -= other.steps, seconds -= other.seconds; }
  };
  std::deque<Interval> intervals_;  // oldest first; they cover the window, or all
  Interval sum_;
};

}  // namespace stoker
