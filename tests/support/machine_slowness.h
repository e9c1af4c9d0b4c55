// machine_slowness: for the timeouts of tests, so that none ends the wait for a process that is healthy and slow.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace stoker::test {

// How many times longer this process takes for a fixed computation than on an idle Zen 4 or 5: the processor, a
// sanitizer, and other processes on the same CPUs. Measured once, in 10 ms there. From 1 to 16, so that a test that
// waits for a timeout ends before ctest ends it.
inline double machine_slowness() {
  static const double kSlowness = [] {
    constexpr int kRounds = 10'000'000;
    constexpr std::chrono::duration<double> kOfZen5{0.01};
    const auto start = std::chrono::steady_clock::now();
    volatile uint64_t state = 1;  // not optimized, whatever the options
    for (int i = 0; i < kRounds; ++i) state = state * 6364136223846793005u + 1;
    return std::clamp((std::chrono::steady_clock::now() - start) / kOfZen5, 1.0, 16.0);
  }();
  return kSlowness;
}

// A time as long for this machine as `time` is for an idle Zen 4 or 5.
inline std::chrono::milliseconds scaled(std::chrono::milliseconds time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time * machine_slowness());
}
inline double scaled_seconds(double seconds) { return seconds * machine_slowness(); }

}  // namespace stoker::test
