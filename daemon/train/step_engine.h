// StepEngine: moves batches to the device that trains, runs the work of the steps there and reads
// values back.
//
// Threads:  the trainer thread only, but for on_gradients_complete(), which work calls on the thread of the
//           backward pass, for which the trainer thread waits.
// Blocking: synchronize() until all started work is complete; run() waits at most for the step
//           before the previous one. The other methods never.
// Errors:   LibTorch's exceptions pass through, including those caused by work that an earlier call
//           started.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/cuda/device_queue.h"
#include "shared/base/status.h"
#include "shared/feed/batch_receiver.h"
#include "shared/task/task.h"

namespace stoker::train {

// The position of a micro-batch in its step.
struct MicroBatchInfo {
  bool is_first = true, is_last = true;
  bool is_instrumented = false;  // runs eagerly and during run(), because its phases are observed
  int level = 0;                 // in the tree of the step, see SumTree; 0 without one
};

class StepEngine {
 public:
  // All of these functions access the tensors of the training state, and nothing else does while the
  // engine exists: on a device they run later than the call, see cuda::DeviceStreams. A function must
  // therefore not use data of the host that changes meanwhile, unless the step is instrumented.

  // Processes a micro-batch. May only issue device work on memory with fixed addresses, because it
  // can be captured once and then replayed instead of being called.
  using Work = std::function<void(const task::Batch&, MicroBatchInfo)>;
  // Called in batch order, when the memory of a batch is no longer read.
  using Release = std::function<void(uint64_t ticket)>;
  // Transforms a batch before `work`. Called in every step, so the result can depend on the ticket.
  using Prepare = std::function<task::Batch(task::Batch, uint64_t ticket, MicroBatchInfo)>;
  // In a group, the ranks exchange tensors after the work of the last micro-batch of a step.
  struct Exchange {
    // Called during run() and never captured, so it can use data of the host. False: the step ends here.
    std::function<bool()> run;
    // After it, as `work`; can be empty. What one leaves to the next must have been allocated before
    // both were captured.
    std::function<void()> work;
  };
  // Sums of gradients over the ranks. The work of the last micro-batch calls on_gradients_complete() of each, in
  // order. The engine then calls start(), or if the work is captured, after each replay has been submitted; on
  // the device, the sum starts when the replay has got to that place.
  struct Sums {
    size_t count = 0;
    std::function<void(size_t)> start;
  };
  struct Calls {
    Prepare prepare;
    Work work;
    Release release;
    std::vector<Exchange> exchanges = {};  // in this order
    Sums sums = {};

    void exchange() const {
      for (const Exchange& each : exchanges) {
        if (!each.run()) return;
        if (each.work) each.work();
      }
    }
  };
  // Creates the engine that calls these. LibTorch's exceptions pass through.
  using Factory = std::function<Result<std::unique_ptr<StepEngine>>(Calls)>;
  using OnRead = std::function<void(std::span<const double> values)>;

  virtual ~StepEngine() = default;

  // The memory of the batch must stay valid until it is released.
  virtual void run(const feed::ReceivedBatch& batch, MicroBatchInfo micro_batch) = 0;
  // Runs work on the training state after all work issued so far.
  virtual void submit(cuda::Work work) = 0;
  // Reads the scalars as of all work issued so far and passes their values to `on_read` when they
  // are available: immediately, or from a later run(), poll() or synchronize(). In the order of the
  // calls.
  virtual void read(const std::vector<at::Tensor>& scalars, OnRead on_read) = 0;
  // Releases batches and delivers values that have completed. Returns false when nothing is
  // pending.
  virtual bool poll() = 0;
  // Then the host may use the state until the next run(), submit() or read().
  virtual void synchronize() = 0;
  // The work does something else from the next run() on; what was captured of it is dropped. Call
  // synchronize() first.
  virtual void drop_captured_work() {}
  // By work, see Sums.
  virtual void on_gradients_complete(size_t sum) = 0;
  // With exchanges, all ranks capture from the same step on, or none does: each step takes as long as on the
  // slowest, and the same kernels should update all replicas.
  struct CaptureVote {
    bool is_ready = false;      // the work has run often enough
    bool has_given_up = false;  // or never captures
  };
  virtual CaptureVote capture_vote() const { return {}; }
  // Between steps.
  virtual void start_capturing() {}
  virtual void stop_capturing(const std::string& /*reason*/) {}
  // Whether work runs later than its call, or replays what was captured, so that it must get
  // everything that changes from step to step in device memory.
  virtual bool is_asynchronous() const = 0;
  // Usage of the completed steps; does not wait for pending ones.
  virtual cuda::DeviceUsage device_usage() = 0;
};

}  // namespace stoker::train
