// regression: one or more target values per sample, mean squared error.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mse_loss.h>

#include "shared/eval_metrics/eval_metrics.h"
#include "shared/task/host_values.h"
#include "shared/task/label_loss.h"
#include "shared/task/regression_batch.h"
#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

class RegressionEvaluation : public Evaluation {
 public:
  explicit RegressionEvaluation(RegressionBatch indices)
      : indices_(std::move(indices)), metrics_(static_cast<size_t>(indices_.width)) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const HostValues<float> outputs(
        model_outputs_of_width(model, batch, indices_.input, indices_.width));
    const HostValues<float> targets(batch.at(indices_.target));
    metrics_.add(outputs.span(), targets.span());
  }

  eval_metrics::EvalReport report() const override { return metrics_.report(); }

 private:
  const RegressionBatch indices_;
  eval_metrics::RegressionMetrics metrics_;
};

class Regression : public Task {
 public:
  explicit Regression(RegressionBatch indices) : indices_(std::move(indices)) {}

  std::vector<std::string> training_metrics(const model::Model& /*model*/) const override {
    return {"mae"};
  }
  LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const override {
    const at::Tensor outputs = model_outputs_of_width(model, batch, indices_.input, indices_.width);
    const at::Tensor& target = batch.at(indices_.target);
    const at::Tensor loss = at::mse_loss(outputs, target);
    const at::NoGradGuard no_grad;
    return with_mean(loss, outputs.sub(target).abs());
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions&) const override {
    return std::make_unique<RegressionEvaluation>(indices_);
  }

 private:
  const RegressionBatch indices_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_regression(const config::Normalize* maybe_normalize,
                                              const Samples& sample, uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(RegressionBatch indices,
                          find_regression_batch(maybe_normalize, sample, classes, "regression",
                                                "`target` F32 [width]"));
  return std::unique_ptr<Task>(std::make_unique<Regression>(std::move(indices)));
}

}  // namespace stoker::task
