// CheckpointEvaluator: loads a verified checkpoint into a model and computes the metrics of every
// configured data set.
//
// Deterministic: the same checkpoint, data, batch and number of threads give the same bytes of
// metrics; another batch changes what the model rounds, and nothing else.
//
// Threads:  one.
// Blocking: evaluate() as long as the data takes; it looks at the stop token and the deadline
//           between batches.
// Errors:   create(): the data set's (kNotFound, kCorrupt, …), kMismatch. evaluate(): kCorrupt (the
//           checkpoint), kMismatch (another model), kTimedOut, kCancelled (stop), kInternal,
//           kOutOfMemory. After an error it can be used again.
#pragma once

#include <chrono>
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
  // Where the indexes of data sets are.
  struct Indexes {
    std::string own;               // of config.eval.datasets; made where they are not there
    std::string of_training = {};  // stokerd's, of data.train; empty: there is no run
  };
  // Opens the sets in config.eval.datasets and builds the model.
  static Result<std::unique_ptr<CheckpointEvaluator>> create(const config::Config& config,
                                                             const Indexes& indexes, Clock& clock);
  ~CheckpointEvaluator();

  // With what people can look at (eval.num_misclassified, eval.generate).
  Result<Evaluation> evaluate(const checkpoint::VerifiedCheckpoint& checkpoint,
                              std::stop_token stop);
  Result<run::EvalResult> measure(const checkpoint::VerifiedCheckpoint& checkpoint,
                                  std::stop_token stop);
  // The weights alone, of no checkpoint: step 0 and no manifest.
  Result<run::EvalResult> measure_file(const std::string& safetensors_path, std::stop_token stop);

  // Text that the checkpoint's model writes after `prompt`; for language models over bytes.
  Result<std::string> generate_text(const checkpoint::VerifiedCheckpoint& checkpoint,
                                    const std::string& prompt, int bytes, double temperature,
                                    uint64_t seed);

 private:
  struct State;
  explicit CheckpointEvaluator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stoker::evaluator
