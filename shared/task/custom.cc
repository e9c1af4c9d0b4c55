// custom: trains with the loss of the model itself (model.name: exported, plugin). Evaluates as another
// task does, or reports that loss and the metrics of the model.
#include <utility>

#include <ATen/core/grad_mode.h>

#include "shared/base/tensor_role.h"
#include "shared/eval_metrics/eval_metrics.h"
#include "shared/task/host_values.h"
#include "shared/task/label_loss.h"
#include "shared/task/model_input.h"
#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

class CustomBatch {
 public:
  CustomBatch(Samples sample, ModelInput input)
      : sample_(std::move(sample)), input_(std::move(input)) {}

  model::NamedTensors fields(const Batch& batch) const {
    model::NamedTensors fields;
    for (size_t i = 0; i < sample_.size(); ++i)
      fields.emplace_back(sample_[i].name, i == input_.values ? input_values(batch, input_)
                                           : role_of(sample_[i]) == TensorRole::kMask
                                               ? pixel_labels(batch.at(i))
                                               : batch.at(i));
    return fields;
  }

 private:
  const Samples sample_;
  const ModelInput input_;
};

// The loss over all values; over the samples if the model returns the mean of a batch. Unlike other
// metrics it depends on the batch size in the last digits.
class StepEvaluation : public Evaluation {
 public:
  explicit StepEvaluation(const CustomBatch& layout) : layout_(layout) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const model::StepOutput step = model.step(layout_.fields(batch));
    const double count = step.loss.maybe_count.defined()
                             ? step.loss.maybe_count.item<double>()
                             : static_cast<double>(batch.front().size(0));
    loss_.sum += (count > 0 ? count : 1) * step.loss.mean.item<double>();
    loss_.count += count;
    const std::vector<std::string> names = model.step_metrics();
    if (names.empty()) return;
    const HostValues<double> sums(step.metric_sums), counts(step.metric_counts);
    for (size_t i = metrics_.size(); i < names.size(); ++i) metrics_.push_back({names[i], {}});
    for (size_t i = 0; i < names.size(); ++i) {
      metrics_[i].second.sum += sums.span()[i];
      metrics_[i].second.count += counts.span()[i];
    }
  }
  eval_metrics::EvalReport report() const override {
    eval_metrics::EvalReport report{.metrics = {{"loss", loss_.mean()}}};
    for (const auto& [name, metric] : metrics_) report.metrics.emplace_back(name, metric.mean());
    return report;
  }

 private:
  struct Sum {
    double sum = 0, count = 0;
    double mean() const { return sum / count; }
  };
  const CustomBatch& layout_;
  Sum loss_;
  std::vector<std::pair<std::string, Sum>> metrics_;
};

class Custom : public Task {
 public:
  Custom(std::unique_ptr<Task> maybe_evaluated, CustomBatch layout)
      : maybe_evaluated_(std::move(maybe_evaluated)), layout_(std::move(layout)) {}

  std::vector<std::string> training_metrics(const model::Model& model) const override {
    return model.step_metrics();
  }
  int64_t counts_per_sample(const model::Model& model) const override {
    return model.counts_per_sample();
  }
  LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const override {
    model::StepOutput step = model.step(layout_.fields(batch));
    return {.loss = std::move(step.loss),
            .metric_sum = std::move(step.metric_sums),
            .maybe_device_count = std::move(step.metric_counts)};
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions& options) const override {
    if (maybe_evaluated_ != nullptr) return maybe_evaluated_->start_evaluation(options);
    return std::make_unique<StepEvaluation>(layout_);
  }

 private:
  const std::unique_ptr<Task> maybe_evaluated_;
  const CustomBatch layout_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_custom(std::unique_ptr<Task> maybe_evaluated,
                                          const config::Normalize* maybe_normalize,
                                          const Samples& sample) {
  STOKER_ASSIGN_OR_RETURN(ModelInput input, find_model_input(maybe_normalize, sample, "custom"));
  return std::unique_ptr<Task>(
      std::make_unique<Custom>(std::move(maybe_evaluated), CustomBatch(sample, std::move(input))));
}

}  // namespace stoker::task
