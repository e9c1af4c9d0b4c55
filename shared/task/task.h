// Task: what a model is trained for: computes the loss of a batch and the evaluation metrics of a
// dataset.
//
// Threads: one thread at a time.
// Errors:  exceptions of LibTorch are propagated; the trainer and the evaluator catch them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/config/training_config.h"
#include "shared/eval_metrics/eval_metrics.h"
#include "shared/model/model.h"

namespace stoker::task {

// The tensors of the dataset's spec() with a leading batch dimension, in the same order and with
// the same dtypes, on the device of the model. The sequences of a batch are padded to a common
// length, which can be less than that in spec().
using Batch = std::vector<at::Tensor>;
using model::LossTerm;

// The result of a forward pass in training.
struct LossAndMetric {
  LossTerm loss;
  // The values of Task::training_metrics() are metric_sum divided by the number of values in each, over
  // any number of batches. [metrics], or a scalar if there is one, without gradient, on the device of
  // the batch; undefined if there are none.
  at::Tensor metric_sum = {};
  // The number of values: the same for all batches of this size, or on the device, with the shape of
  // metric_sum, if it depends on their labels.
  int64_t metric_count = 0;
  at::Tensor maybe_device_count = {};
};

// What an evaluation reports in addition to its metrics.
struct EvaluationOptions {
  int top_k = 5;              // classification only; omitted if 0, 1 or >= the number of classes
  size_t misclassified = 0;   // number of misclassified samples to report
  bool has_pr_curves = true;  // classification only; up to eval_metrics::kMaxPrCurves classes
  // captioning only: the beams of the search, the number of captions to report, and the word of each
  // class.
  int num_beams = 1;
  size_t captions = 0;
  std::vector<std::string> class_names = {};
};

// Accumulates over batches. The result does not depend on the batch size, except for rounding
// inside the model (shared/eval_metrics). NaN if nothing was added.
class Evaluation {
 public:
  virtual ~Evaluation() = default;
  // Records no gradient. The caller must put the model into eval mode.
  virtual void add(model::Model& model, const Batch& batch) = 0;
  // The metrics of the task, see eval_metrics::builtin_metrics(), and details of classification.
  virtual eval_metrics::EvalReport report() const = 0;
};

class Task {
 public:
  virtual ~Task() = default;
  // Applies mixup or CutMix to a training batch before loss(). Deterministic for a seed and ticket;
  // returns the batch unchanged if neither is configured. Tensors of the result can have other
  // dtypes.
  virtual Batch mixed(Batch batch, uint64_t /*seed*/, uint64_t /*ticket*/) const { return batch; }
  // What is reported of training batches in addition to the loss: the metrics of these names, at most
  // model::kMaxStepMetrics.
  virtual std::vector<std::string> training_metrics(const model::Model& /*model*/) const {
    return {};
  }
  // The maximum number of values in the loss of a sample if that number or the weight of the values
  // differs between samples; LossTerm::maybe_count is then defined. 0: all samples have the same.
  virtual int64_t counts_per_sample(const model::Model& /*model*/) const { return 0; }
  // The loss, and the training metric from the same forward pass. Does not wait for the device for
  // the metric.
  virtual LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const = 0;
  // Mean loss over the batch, an F32 scalar with gradient.
  at::Tensor loss(model::Model& model, const Batch& batch) const {
    return loss_and_metric(model, batch).loss.mean;
  }
  virtual std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions& options) const = 0;
};

// `maybe_normalize`: the normalization of data.train (config::training_normalization()), which
// evaluation shares; null: images are only scaled to [0, 1]. `batch_transforms`: of data.train, for
// training. `model_has_loss`: config::ModelConfig::has_loss(); its loss then replaces the task's in
// training. kMismatch: the samples of the dataset do not fit the task; names both sides.
Result<std::unique_ptr<Task>> make_task(
    const config::TaskConfig& config, const config::Normalize* maybe_normalize,
    const std::vector<TensorSpec>& sample, uint64_t classes,
    const std::vector<config::BatchTransform>& batch_transforms = {}, bool model_has_loss = false);

}  // namespace stoker::task
