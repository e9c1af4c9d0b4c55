// test_seed: the seed of what tests choose at random.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace stoker::test {

// STOKER_TEST_SEED, which scripts/nightly.sh changes, or 1: a change is tested with the same choices each time.
// Printed, because it repeats a failure.
inline uint64_t test_seed() {
  static const uint64_t kSeed = [] {
    const char* const text = std::getenv("STOKER_TEST_SEED");
    const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
    std::printf("STOKER_TEST_SEED=%llu repeats the random choices of this test\n",
                static_cast<unsigned long long>(seed));
    return seed;
  }();
  return kSeed;
}

}  // namespace stoker::test
