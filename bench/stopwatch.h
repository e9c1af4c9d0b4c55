// Stopwatch: measures the time since its construction.
#pragma once

#include <chrono>

namespace stoker::bench {

class Stopwatch {
 public:
  std::chrono::nanoseconds elapsed() const { return Clock::now() - start_; }
  double seconds() const { return std::chrono::duration<double>(elapsed()).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace stoker::bench
