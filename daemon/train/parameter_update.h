// ParameterUpdate: the work of a step: the gradients of the micro-batches of this process, and the update of the
// parameters with them, in a group with the sums of all ranks.
//
// Threads:   the trainer thread, which calls it, and the engine, which calls what calls() returns.
// Blocking:  as StepEngine. On the CPU an update that can be skipped is waited for.
// Ownership: what the constructor takes by reference must outlive this object.
// Errors:    LibTorch's exceptions pass through.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "daemon/train/coordination.h"
#include "daemon/train/nonfinite_guard.h"
#include "daemon/train/step_engine.h"
#include "daemon/train/step_instrumentation.h"
#include "daemon/train/train_step.h"
#include "daemon/train/training_state.h"
#include "shared/config/config.h"
#include "shared/feed/batch_receiver.h"

namespace stoker::train {

class ParameterUpdate {
 public:
  // `config`: in effect.
  ParameterUpdate(const config::Config& config, TrainingState& state, NonfiniteGuard& guard,
                  Coordination& ranks, StepInstrumentation& instrumentation);

  // What the engine calls. `updates`: without `update` and `update_ema`.
  StepEngine::Calls calls(StepEngine::Release release, Coordination::Updates updates);
  // The engine that was created with these calls.
  void start(StepEngine& engine);

  // ---- A step: begin(), run() with each of its micro-batches, then end(), or undo() after the last run()
  void begin();
  void run(const feed::ReceivedBatch& batch, int64_t part, double lr);
  void end();
  void undo();

  uint64_t tree_bytes() const { return step_.tree_bytes(); }

 private:
  void work(const task::Batch& batch, MicroBatchInfo micro_batch);
  void update();
  void update_ema();
  bool is_skipped() const;  // the step that was just finished; waits for the device
  StepObserver* observer_of(MicroBatchInfo micro_batch);
  void seed_generators(uint64_t ticket);

  const config::Config& config_;
  TrainingState& state_;
  NonfiniteGuard& guard_;
  Coordination& ranks_;
  StepInstrumentation& instrumentation_;
  const bool uses_tree_;     // distributed.reduction: ordered
  const int64_t num_parts_;  // micro-batches of a step that are those of this process
  TrainStep step_;
  StepEngine* engine_ = nullptr;
  // At the start of the step; only for functions of the engine.
  std::optional<TrainingState::Mark> step_began_;
};

}  // namespace stoker::train
