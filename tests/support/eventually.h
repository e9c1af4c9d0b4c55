// eventually: waits for a condition of another thread or process for which there is no blocking call.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/support/machine_slowness.h"

namespace stoker::test {

// The bound of a loop that waits. It counts how long the loop runs: while this process does not get a CPU or
// is stopped, others may not, either.
class Patience {
 public:
  explicit Patience(std::chrono::milliseconds limit) : left_(scaled(limit)) {}
  // Called once per round.
  bool is_over() {
    constexpr std::chrono::steady_clock::duration kLongestRound = std::chrono::milliseconds(50);
    const auto now = std::chrono::steady_clock::now();
    left_ -= std::min(now - last_, kLongestRound);
    last_ = now;
    return left_ <= std::chrono::steady_clock::duration::zero();
  }

 private:
  std::chrono::steady_clock::duration left_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// False after a time that no successful test reaches.
template <typename Condition>
bool eventually(const Condition& condition,
                std::chrono::milliseconds limit = std::chrono::seconds(60)) {
  Patience patience(limit);
  while (!condition()) {
    if (patience.is_over()) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace stoker::test
