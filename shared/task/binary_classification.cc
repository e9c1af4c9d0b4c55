// binary_classification: one of two classes per sample, from one logit; binary cross entropy with
// logits.
#include <cmath>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "shared/eval_metrics/eval_metrics.h"
#include "shared/task/binary_loss.h"
#include "shared/task/class_weights.h"
#include "shared/task/host_values.h"
#include "shared/task/label_loss.h"
#include "shared/task/model_input.h"
#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

struct BinaryBatch {
  ModelInput input;
  size_t label = 0;  // index in a batch
};

// [batch]
at::Tensor logits_of(model::Model& model, const Batch& batch, const BinaryBatch& indices) {
  return model_outputs_of_width(model, batch, indices.input, 1).squeeze(1);
}

class BinaryEvaluation : public Evaluation {
 public:
  BinaryEvaluation(BinaryBatch indices, BinaryLoss loss, const EvaluationOptions& options)
      : indices_(std::move(indices)), loss_(std::move(loss)), metrics_(options.misclassified) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const at::Tensor logits = logits_of(model, batch, indices_);
    const at::Tensor& labels = batch.at(indices_.label);
    const HostValues<float> losses(
        loss_.of_each(logits.unsqueeze(1), labels.unsqueeze(1).to(at::kFloat)).squeeze(1));
    const HostValues<float> logit_values(logits);
    const HostValues<int64_t> label_values(labels);
    metrics_.add(losses.span(), logit_values.span(), label_values.span());
  }

  eval_metrics::EvalReport report() const override { return metrics_.report(); }

 private:
  const BinaryBatch indices_;
  const BinaryLoss loss_;
  eval_metrics::BinaryClassificationMetrics metrics_;
};

class BinaryClassification : public Task {
 public:
  BinaryClassification(BinaryBatch indices, BinaryLoss loss)
      : indices_(std::move(indices)), loss_(std::move(loss)) {}

  std::vector<std::string> training_metrics(const model::Model& /*model*/) const override {
    return {"accuracy"};
  }
  LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const override {
    const at::Tensor logits = logits_of(model, batch, indices_);
    const at::Tensor& labels = batch.at(indices_.label);
    const at::Tensor loss = loss_.mean(logits.unsqueeze(1), labels.unsqueeze(1).to(at::kFloat));
    const at::NoGradGuard no_grad;
    return with_mean(loss, logits.gt(0).eq(labels));
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions& options) const override {
    return std::make_unique<BinaryEvaluation>(indices_, loss_, options);
  }

 private:
  const BinaryBatch indices_;
  const BinaryLoss loss_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_binary_classification(
    const config::BinaryClassificationTask& config, const config::Normalize* maybe_normalize,
    const Samples& sample, uint64_t classes) {
  BinaryBatch indices;
  STOKER_ASSIGN_OR_RETURN(indices.input,
                          find_model_input(maybe_normalize, sample, "binary_classification"));
  STOKER_ASSIGN_OR_RETURN(indices.label,
                          component_index(sample, TensorRole::kLabel, "binary_classification"));
  const TensorSpec& label = sample[indices.label];
  if (label.dtype != DType::kI64 || !label.shape.empty() || classes != 2) {
    return Status(StatusCode::kMismatch,
                  "task binary_classification needs `label` I64 [] of 2 classes; the data has " +
                      to_string(label) + " of " + std::to_string(classes) + " classes");
  }
  const std::vector<double> weights =
      config.pos_weight == 1 ? std::vector<double>() : std::vector<double>{config.pos_weight};
  STOKER_ASSIGN_OR_RETURN(ClassWeights pos_weight,
                          ClassWeights::of(weights, "task.pos_weight", 1, "logit"));
  return std::unique_ptr<Task>(std::make_unique<BinaryClassification>(
      std::move(indices), BinaryLoss(config, std::move(pos_weight))));
}

}  // namespace stoker::task
