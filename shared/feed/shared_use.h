// SharedUse: where a worker process stores what it uses (resource_use.h), in memory that it shares with the
// process that started it. Only the worker can measure itself: the kernel shows nobody else what a
// process without PR_SET_DUMPABLE reads.
//
// Threads: store() in one thread, load() in any of both processes. Lock-free.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "shared/base/resource_use.h"

namespace stoker::feed {

// Between two calls of store().
inline constexpr std::chrono::milliseconds kUseInterval{200};

struct SharedUse {
  // The bits of doubles: CPU seconds, resident bytes, bytes read and written. 0: not stored yet.
  std::array<uint64_t, 4> words = {};

  void store(const ProcessUse& use) {
    const std::array values{use.cpu_seconds, use.rss_bytes, use.read_bytes, use.written_bytes};
    for (size_t i = 0; i < words.size(); ++i)
      std::atomic_ref(words[i]).store(std::bit_cast<uint64_t>(values[i]),
                                      std::memory_order_relaxed);
  }
  // The process is not trusted: what is no amount is NaN.
  ProcessUse load() {
    const auto value = [this](size_t i) {
      const auto stored =
          std::bit_cast<double>(std::atomic_ref(words[i]).load(std::memory_order_relaxed));
      constexpr double kMax = 1e18;
      return stored >= 0 && stored <= kMax ? stored : kNotMeasured;
    };
    return {.cpu_seconds = value(0),
            .rss_bytes = value(1),
            .peak_rss_bytes = kNotMeasured,
            .read_bytes = value(2),
            .written_bytes = value(3)};
  }
};
static_assert(sizeof(SharedUse) == 32);

}  // namespace stoker::feed
