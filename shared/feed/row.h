// Row: one sample's place in a batch that a pool works on, and its bytes where they were read
//      ahead.
//
// Threads: a value; whoever has it fills it.
#pragma once

#include <cstdint>
#include <memory>

#include "shared/dataset/prefetched_bytes.h"
#include "shared/feed/batch_in_work.h"

namespace stoker::feed {

struct Row {
  BatchInWork* batch = nullptr;
  uint64_t index = 0;
  std::unique_ptr<dataset::PrefetchedBytes> maybe_bytes;
};

}  // namespace stoker::feed
