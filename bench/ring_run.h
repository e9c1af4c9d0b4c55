// RingRun: one producer and one consumer that pass batches through a ring for a while.
//
// Threads:  the caller consumes; the producer is a thread or a process of its own.
// Blocking: about `time`, after twice the ring's slots have passed unmeasured.
// Errors:   those of the ring.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>

#include "shared/base/status.h"
#include "shared/ring/batch_layout.h"

namespace stoker::bench {

enum class Side { kThread, kProcess };  // where the producer runs

struct RingRun {
  ring::BatchLayout layout;
  uint64_t slots = 8;
  Side producer = Side::kThread;
  std::function<void(std::span<std::byte>)> fill;  // a slot, before it is published
};

Result<double> batches_per_second(const RingRun& run, std::chrono::nanoseconds time);

}  // namespace stoker::bench
