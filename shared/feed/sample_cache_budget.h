// sample room: how much a process that reads may keep of the samples that it has read.
//
// Threads: pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shared/config/feed_config.h"

namespace stoker::feed {

inline constexpr uint64_t kMaxCachedBytes = 256ull << 20;

// For Dataset::enable_memory_cache(). An eighth of what a reading thread may take: whoever wants processes
// to be small sets feed.worker_memory_limit_mib, and then little is kept.
inline uint64_t sample_cache_budget(const config::FeedConfig& feed) {
  if (!feed.worker_memory_limit_mib) return kMaxCachedBytes;
  const auto allowed = static_cast<uint64_t>(*feed.worker_memory_limit_mib) << 20;
  return std::min(kMaxCachedBytes, allowed / 8);
}

}  // namespace stoker::feed
