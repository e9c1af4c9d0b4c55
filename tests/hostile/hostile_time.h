// How long the tests that repeat something at random do so, and with which random numbers.
#pragma once

#include <chrono>
#include <random>

#include "tests/support/full_test.h"
#include "tests/support/test_seed.h"

namespace stoker::hostile {

inline std::chrono::steady_clock::time_point end_of_test(std::chrono::milliseconds usual,
                                                         std::chrono::milliseconds full) {
  return std::chrono::steady_clock::now() + (test::is_full_test() ? full : usual);
}

inline std::mt19937_64 make_random() { return std::mt19937_64(test::test_seed()); }

}  // namespace stoker::hostile
