// multilabel_classification: several independent binary labels per sample; binary cross entropy
// with logits.
#include <utility>

#include <ATen/core/grad_mode.h>

#include "shared/eval_metrics/eval_metrics.h"
#include "shared/task/binary_loss.h"
#include "shared/task/class_weights.h"
#include "shared/task/host_values.h"
#include "shared/task/label_loss.h"
#include "shared/task/regression_batch.h"
#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

class MultiLabelEvaluation : public Evaluation {
 public:
  MultiLabelEvaluation(RegressionBatch indices, BinaryLoss loss)
      : indices_(std::move(indices)),
        loss_(std::move(loss)),
        metrics_(static_cast<size_t>(indices_.width)) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const at::Tensor logits = model_outputs_of_width(model, batch, indices_.input, indices_.width);
    const at::Tensor& target = batch.at(indices_.target);
    const HostValues<float> losses(loss_.of_each(logits, target));
    const HostValues<float> scores(logits);
    const HostValues<float> targets(target);
    metrics_.add(losses.span(), scores.span(), targets.span());
  }

  eval_metrics::EvalReport report() const override { return metrics_.report(); }

 private:
  const RegressionBatch indices_;
  const BinaryLoss loss_;
  eval_metrics::MultilabelMetrics metrics_;
};

class MultiLabel : public Task {
 public:
  MultiLabel(RegressionBatch indices, BinaryLoss loss)
      : indices_(std::move(indices)), loss_(std::move(loss)) {}

  std::vector<std::string> training_metrics(const model::Model& /*model*/) const override {
    return {"exact_match"};
  }
  LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const override {
    const at::Tensor logits = model_outputs_of_width(model, batch, indices_.input, indices_.width);
    const at::Tensor& target = batch.at(indices_.target);
    const at::Tensor loss = loss_.mean(logits, target);
    const at::NoGradGuard no_grad;
    return with_mean(loss, logits.gt(0).eq(target.gt(0.5)).all(1));
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions&) const override {
    return std::make_unique<MultiLabelEvaluation>(indices_, loss_);
  }

 private:
  const RegressionBatch indices_;
  const BinaryLoss loss_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_multilabel_classification(
    const config::MultilabelClassificationTask& config, const config::Normalize* maybe_normalize,
    const Samples& sample, uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(
      RegressionBatch indices,
      find_regression_batch(maybe_normalize, sample, classes, "multilabel_classification",
                            "`target` F32 [labels] of 0 and 1"));
  STOKER_ASSIGN_OR_RETURN(
      ClassWeights weights,
      ClassWeights::of(config.pos_weight, "task.pos_weight", static_cast<uint64_t>(indices.width),
                       "labels in its target"));
  return std::unique_ptr<Task>(
      std::make_unique<MultiLabel>(std::move(indices), BinaryLoss(config, std::move(weights))));
}

}  // namespace stoker::task
