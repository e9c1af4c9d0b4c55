// RingRun: passes batches from one producer to one consumer through a ring.
//
// Threads:  the caller consumes; the producer is another thread or process.
// Blocking: about `time`, after an unmeasured warm-up of twice the number of ring slots.
// Errors:   those of the ring.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "shared/base/status.h"
#include "shared/ring/batch_layout.h"
#include "shared/ring/shm_ring.h"

namespace stoker::bench {

enum class Side { kThread, kProcess };  // location of the producer

struct RingRun {
  ring::BatchLayout layout;
  uint64_t slots = 8;
  Side producer = Side::kThread;
  std::function<void(std::span<std::byte>)> fill;  // fills a slot before it is published
};

// Takes `batches` batches from a ring and frees their slots.
Status consume_batches(ring::ShmRing& ring, uint64_t batches);

Result<double> batches_per_second(const RingRun& run, std::chrono::nanoseconds time);

}  // namespace stoker::bench
