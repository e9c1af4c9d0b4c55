// ReadAheadOptions: how far a pool reads ahead of its readers.
//
// Threads: a value.
#pragma once

#include <cstdint>

#include "shared/config/feed_config.h"

namespace stoker::feed {

struct ReadAheadOptions {
  int max_reads = 0;          // in flight; 0: none
  bool adapts = false;        // to how long reads wait: fewer, or none; otherwise always so many
  uint64_t memory_bytes = 0;  // of bytes that were asked for and are not decoded yet
};

// What falls to pool `number` of `of`, which share what the settings say.
ReadAheadOptions make_read_ahead_options(const config::FeedConfig& feed, uint32_t number,
                                         uint32_t of);

}  // namespace stoker::feed
