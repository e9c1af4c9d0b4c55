// Task: what a model is trained for: from a batch to a loss, and from many batches to validation
// metrics.
//
// Threads: one thread at a time.
// Errors:  LibTorch's exceptions pass through; the trainer and the evaluator catch them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/config/training_config.h"
#include "shared/eval_metrics/eval_report.h"
#include "shared/model/model.h"

namespace stoker::task {

// The tensors of a data set's spec() with a batch dimension in front, in the same order and with
// the same dtypes, on the model's device. Sequences of one batch are padded to one length, which may
// be less than spec() says.
using Batch = std::vector<at::Tensor>;
// What an evaluation finds beside its metrics.
struct EvaluationOptions {
  int top_k = 5;  // classification: 0 or 1, or not fewer than the classes: no such metric
  size_t misclassified = 0;  // classification: how many of the worst to remember
};

// Sums over batches; the result does not depend on how samples were cut into batches, but for what
// the model itself rounds (shared/eval_metrics). NaN where nothing was added.
class Evaluation {
 public:
  virtual ~Evaluation() = default;
  // Records no gradient. The caller puts the model into eval mode first.
  virtual void add(model::Model& model, const Batch& batch) = 0;
  // language_modeling: loss (nats a token), bits_per_byte (bits_per_token where tokens are not bytes),
  // perplexity, accuracy. classification: loss, accuracy, top5 (the k of the settings), and
  // macro_precision, macro_recall, macro_f1, with figures by class. sequence_labeling: the same of
  // labels instead of samples. ctc: loss, label_error_rate, exact_match. regression: loss (mean squared
  // error), mae, r2.
  virtual eval_metrics::EvalReport report() const = 0;
};

class Task {
 public:
  virtual ~Task() = default;
  // What training makes of a batch before loss(): mixup, cutmix. The same for the same seed and
  // ticket; the batch itself where there is nothing to do. Its tensors may have other dtypes.
  virtual Batch mixed(Batch batch, uint64_t /*seed*/, uint64_t /*ticket*/) const { return batch; }
  // Mean loss over the batch, an F32 scalar with gradient.
  virtual at::Tensor loss(model::Model& model, const Batch& batch) const = 0;
  virtual std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions& options) const = 0;
};

// `maybe_normalize`: the normalization of data.train (config::training_normalization()), which an
// evaluation shares; null: images are only scaled to [0, 1]. `batch_transforms`: of data.train, for
// training. kMismatch when the data set's samples are not what the task needs; says both sides.
Result<std::unique_ptr<Task>> make_task(
    const config::TaskConfig& config, const config::Normalize* maybe_normalize,
    const std::vector<TensorSpec>& sample, uint64_t classes,
    const std::vector<config::BatchTransform>& batch_transforms = {});

}  // namespace stoker::task
