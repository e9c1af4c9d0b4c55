// How long the tests that repeat something at random do so, and with which random numbers.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>

namespace stoker::hostile {

// scripts/fault_tests.sh tests for `full`, a normal test run for `usual`.
inline std::chrono::steady_clock::time_point end_of_test(std::chrono::milliseconds usual,
                                                         std::chrono::milliseconds full) {
  const char* const mode = std::getenv("STOKER_FAULT_TESTS");
  const bool is_full = mode != nullptr && std::string_view(mode) == "full";
  return std::chrono::steady_clock::now() + (is_full ? full : usual);
}

// Prints the seed. STOKER_HOSTILE_SEED repeats a run.
inline std::mt19937_64 make_random() {
  const char* const text = std::getenv("STOKER_HOSTILE_SEED");
  const uint64_t seed = text == nullptr ? std::random_device{}() : std::strtoull(text, nullptr, 10);
  std::printf("STOKER_HOSTILE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return std::mt19937_64(seed);
}

}  // namespace stoker::hostile
