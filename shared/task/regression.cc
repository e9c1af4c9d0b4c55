// regression: one or more target values per sample.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/huber_loss.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <ATen/ops/softmax.h>

#include "shared/eval_metrics/eval_metrics.h"
#include "shared/task/host_values.h"
#include "shared/task/label_loss.h"
#include "shared/task/regression_batch.h"
#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

// Koenker and Bassett, 1978.
at::Tensor quantile_loss(const at::Tensor& outputs, const at::Tensor& targets, double quantile,
                         int64_t reduction) {
  const at::Tensor errors = targets - outputs;
  const at::Tensor losses = at::maximum(errors * quantile, errors * (quantile - 1));
  return reduction == at::Reduction::Mean ? losses.mean() : losses;
}

// Of the distributions `targets` and softmax(outputs), of which each number has a part: the mean over all numbers is
// that over the samples.
at::Tensor divergence(const at::Tensor& outputs, const at::Tensor& targets, int64_t reduction) {
  const auto width = static_cast<double>(outputs.size(1));
  const at::Tensor log_probabilities = at::log_softmax(outputs, 1);
  if (reduction == at::Reduction::None)
    return at::kl_div(log_probabilities, targets, reduction) * width;
  return at::kl_div(log_probabilities, targets, at::Reduction::Sum) /
         static_cast<double>(outputs.size(0));
}

at::Tensor loss_of(const config::RegressionTask& task, const at::Tensor& outputs,
                   const at::Tensor& targets, int64_t reduction) {
  switch (task.loss) {
    case config::RegressionLoss::kMse:
      return at::mse_loss(outputs, targets, reduction);
    case config::RegressionLoss::kL1:
      return at::l1_loss(outputs, targets, reduction);
    case config::RegressionLoss::kHuber:
      return at::huber_loss(outputs, targets, reduction, task.delta);
    case config::RegressionLoss::kSmoothL1:
      return at::smooth_l1_loss(outputs, targets, reduction, task.beta);
    case config::RegressionLoss::kQuantile:
      return quantile_loss(outputs, targets, task.quantile, reduction);
    case config::RegressionLoss::kKlDiv:
      return divergence(outputs, targets, reduction);
  }
  return {};
}

// What the outputs predict, in the units of the targets.
at::Tensor predictions(const config::RegressionTask& task, const at::Tensor& outputs) {
  return task.loss == config::RegressionLoss::kKlDiv ? at::softmax(outputs, 1) : outputs;
}

class RegressionEvaluation : public Evaluation {
 public:
  RegressionEvaluation(RegressionBatch indices, const config::RegressionTask& config)
      : indices_(std::move(indices)),
        config_(config),
        metrics_(static_cast<size_t>(indices_.width)) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const at::Tensor outputs = model_outputs_of_width(model, batch, indices_.input, indices_.width);
    const at::Tensor& target = batch.at(indices_.target);
    const HostValues<float> losses(loss_of(config_, outputs, target, at::Reduction::None));
    const HostValues<float> predicted(predictions(config_, outputs));
    const HostValues<float> targets(target);
    metrics_.add(losses.span(), predicted.span(), targets.span());
  }

  eval_metrics::EvalReport report() const override { return metrics_.report(); }

 private:
  const RegressionBatch indices_;
  const config::RegressionTask config_;
  eval_metrics::RegressionMetrics metrics_;
};

class Regression : public Task {
 public:
  Regression(RegressionBatch indices, const config::RegressionTask& config)
      : indices_(std::move(indices)), config_(config) {}

  std::vector<std::string> training_metrics(const model::Model& /*model*/) const override {
    return {"mae"};
  }
  LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const override {
    const at::Tensor outputs = model_outputs_of_width(model, batch, indices_.input, indices_.width);
    const at::Tensor& target = batch.at(indices_.target);
    const at::Tensor loss = loss_of(config_, outputs, target, at::Reduction::Mean);
    const at::NoGradGuard no_grad;
    return with_mean(loss, predictions(config_, outputs).sub(target).abs());
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions&) const override {
    return std::make_unique<RegressionEvaluation>(indices_, config_);
  }

 private:
  const RegressionBatch indices_;
  const config::RegressionTask config_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_regression(const config::RegressionTask& config,
                                              const config::Normalize* maybe_normalize,
                                              const Samples& sample, uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(RegressionBatch indices,
                          find_regression_batch(maybe_normalize, sample, classes, "regression",
                                                "`target` F32 [width]"));
  if (config.loss == config::RegressionLoss::kKlDiv && indices.width < 2)
    return Status(StatusCode::kMismatch,
                  "task.loss: kl_div compares distributions over 2 or more classes; the data has 1 "
                  "target");
  return std::unique_ptr<Task>(std::make_unique<Regression>(std::move(indices), config));
}

}  // namespace stoker::task
