// StepEngine: brings batches to where training computes, has the work of the steps done there, and
// reads numbers back.
//
// Threads:  the trainer's thread only.
// Blocking: synchronize() until everything that was begun is done; run() at most for a step that is two
//           behind. The others never.
// Errors:   LibTorch's exceptions pass through, also for what an earlier call had begun.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/cuda/device_queue.h"
#include "shared/ring/shm_ring.h"
#include "shared/task/task.h"

namespace stoker::train {

// A micro-batch's place in its step.
struct MicroBatchInfo {
  bool is_first = true, is_last = true;
  bool is_instrumented = false;  // somebody looks at its phases: it is done plainly
};

class StepEngine {
 public:
  // What is done with a micro-batch. Nothing but work for the device on memory that stays where it
  // is: it may be captured once and replayed instead of being called.
  using Work = std::function<void(const task::Batch&, MicroBatchInfo)>;
  // Is told when the memory of a batch is not read any more, in the order of the batches.
  using Release = std::function<void(uint64_t ticket)>;
  // What is made of a batch before that, in each step anew; it may depend on the ticket.
  using Prepare = std::function<task::Batch(task::Batch, uint64_t ticket)>;
  struct Calls {
    Prepare prepare;
    Work work;
    Release release;
  };
  using OnRead = std::function<void(std::span<const double> values)>;

  virtual ~StepEngine() = default;

  virtual void run(const ring::ReadyBatch& batch, MicroBatchInfo micro_batch) = 0;
  // Reads scalars as they are after the work so far, and gives them to `on_read` when they are there:
  // at once, or from a later run(), poll() or synchronize(). In the order of the calls.
  virtual void read(const std::vector<at::Tensor>& scalars, OnRead on_read) = 0;
  // Releases batches, and gives numbers away, that have come meanwhile. False when nothing is under
  // way.
  virtual bool poll() = 0;
  virtual void synchronize() = 0;
  // Of the steps so far, without waiting for those that are under way.
  virtual cuda::DeviceUsage device_usage() = 0;
};

}  // namespace stoker::train
