// CheckpointEvaluator: loads a verified checkpoint into a model and computes the metrics of every
// evaluated dataset.
//
// Deterministic: the same checkpoint, data, batch size and number of threads give bit-for-bit the
// same metrics. Another batch size changes only rounding in the model.
//
// A sample that crashes the worker process that reads it is excluded from the evaluation, counted in
// the result and not read again by this object (shared/feed/sandboxed_dataset.h).
//
// Threads:  one.
// Blocking: evaluate() runs as long as the data takes; it checks the stop token and the deadline
//           between batches.
// Errors:   create(): those of opening a dataset (kNotFound, kCorrupt, …), kMismatch, kCancelled;
//           kPermission: its worker process may not install its sandbox. evaluate():
//           kCorrupt (the checkpoint, or a sample, with its file), kMismatch (another model), kIoError (of
//           the data, too), kTimedOut, kCancelled (stop), kInternal, kOutOfMemory. The object remains usable after an error.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "evaluator/evaluation_loop.h"
#include "shared/base/clock.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/run/eval_result.h"

namespace stoker::evaluator {

class CheckpointEvaluator {
 public:
  // Directories of the dataset indexes.
  struct Indexes {
    std::string own;         // of eval.datasets; missing indexes are built here
    std::string train = {};  // of data.train, written by stokerd; empty: no run
  };
  // Opens the datasets of eval.datasets and builds the model. `feed_program`, `stop`: see
  // open_batched_datasets().
  static Result<std::unique_ptr<CheckpointEvaluator>> create(const config::Config& config,
                                                             const Indexes& indexes, Clock& clock,
                                                             const std::string& feed_program = {},
                                                             const std::stop_token& stop = {});
  ~CheckpointEvaluator();

  // Called between batches; returns how long it took, which eval.timeout_seconds does not count. It
  // returns early on a stop.
  using Pause = std::function<std::chrono::nanoseconds(const std::stop_token&)>;
  void pause_between_batches(Pause pause);

  // Called between batches with the numbers of samples of all datasets.
  using OnProgress = std::function<void(uint64_t done, uint64_t total)>;
  void report_progress(OnProgress on_progress);

  // Also creates the artifacts (eval.num_misclassified, eval.generate).
  Result<Evaluation> evaluate(const checkpoint::VerifiedCheckpoint& checkpoint,
                              std::stop_token stop);
  Result<run::EvalResult> measure(const checkpoint::VerifiedCheckpoint& checkpoint,
                                  std::stop_token stop);
  // For a weights file without a checkpoint: step 0, empty manifest digest.
  Result<run::EvalResult> measure_file(const std::string& safetensors_path, std::stop_token stop);

  // Text that continues a prompt; only for language models with a tokenizer or over bytes.
  Result<std::string> generate_text(const checkpoint::VerifiedCheckpoint& checkpoint,
                                    const config::GenerateConfig& generate);

 private:
  struct State;
  explicit CheckpointEvaluator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stoker::evaluator
