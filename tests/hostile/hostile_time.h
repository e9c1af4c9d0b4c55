// How long the tests that repeat something at random do so, and with which random numbers.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "tests/support/full_test.h"

namespace stoker::hostile {

inline std::chrono::steady_clock::time_point end_of_test(std::chrono::milliseconds usual,
                                                         std::chrono::milliseconds full) {
  return std::chrono::steady_clock::now() + (test::is_full_test() ? full : usual);
}

// A new seed in full tests, printed; otherwise the same one, so that a failure can be repeated.
// STOKER_HOSTILE_SEED repeats a run.
inline std::mt19937_64 make_random() {
  const char* const text = std::getenv("STOKER_HOSTILE_SEED");
  uint64_t seed = test::is_full_test() ? std::random_device{}() : 1;
  if (text != nullptr) seed = std::strtoull(text, nullptr, 10);
  std::printf("STOKER_HOSTILE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return std::mt19937_64(seed);
}

}  // namespace stoker::hostile
