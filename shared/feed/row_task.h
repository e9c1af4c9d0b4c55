// RowTask: neighbouring places of a batch that a pool works on, which one thread fills together; and the
//       bytes of the sample where there is one and they were read ahead.
//
// Threads: a value; whoever has it fills it.
#pragma once

#include <cstdint>
#include <memory>

#include "shared/dataset/prefetched_bytes.h"
#include "shared/feed/batch_assembly.h"

namespace stoker::feed {

struct RowTask {
  BatchAssembly* batch = nullptr;
  uint64_t first = 0;
  uint64_t count = 1;
  std::unique_ptr<dataset::PrefetchedBytes> maybe_bytes = nullptr;
};

}  // namespace stoker::feed
