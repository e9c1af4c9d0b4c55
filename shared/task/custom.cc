// custom: trains with the loss of the model itself (model.name: exported). Evaluates as another task
// does, or reports that loss.
#include <utility>

#include <ATen/core/grad_mode.h>

#include "shared/eval_metrics/eval_metrics.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/user_model.h"
#include "shared/task/host_values.h"
#include "shared/task/label_loss.h"
#include "shared/task/sequence_labels.h"
#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

struct LossArguments {
  std::vector<at::Tensor> inputs, targets;
};

at::Tensor with_all_steps(const at::Tensor& values, const TensorSpec& spec, double padding) {
  return model::extend_steps(values, spec.shape.empty() ? 0 : spec.shape[0], padding);
}

class CustomBatch {
 public:
  CustomBatch(model::LossBatch layout, ModelInput input)
      : layout_(std::move(layout)), input_(std::move(input)) {}

  LossArguments arguments(const Batch& batch) const {
    at::Tensor values = input_values(batch, input_);
    LossArguments arguments;
    if (layout_.is_predicting) {
      const int64_t time = values.size(1) - 1;
      at::Tensor next = values.narrow(1, 1, time);
      if (layout_.maybe_length)
        next = without_padding(next, sequence_lengths(batch, input_, time + 1) - 1);
      arguments.targets.push_back(with_all_steps(next, layout_.target_specs[0], kIgnoredLabel));
      values = values.narrow(1, 0, time);
    }
    arguments.inputs.push_back(with_all_steps(values, layout_.input_specs[0], 0));
    if (layout_.maybe_length && !layout_.is_predicting)
      arguments.inputs.push_back(batch.at(*layout_.maybe_length));
    for (size_t i = 0; i < layout_.targets.size(); ++i) {
      const at::Tensor& target = batch.at(layout_.targets[i]);
      const double padding = target.is_floating_point() ? 0 : kIgnoredLabel;
      arguments.targets.push_back(with_all_steps(target, layout_.target_specs[i], padding));
    }
    return arguments;
  }

 private:
  const model::LossBatch layout_;
  const ModelInput input_;
};

// The loss over all values; over the samples if the model returns the mean of a batch. Unlike other
// metrics it depends on the batch size in the last digits.
class LossEvaluation : public Evaluation {
 public:
  explicit LossEvaluation(const CustomBatch& layout) : layout_(layout) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const LossArguments arguments = layout_.arguments(batch);
    const LossTerm loss = model.loss(arguments.inputs, arguments.targets);
    const double count = loss.maybe_count.defined() ? loss.maybe_count.item<double>()
                                                    : static_cast<double>(batch.front().size(0));
    sum_ += count * loss.mean.item<double>();
    count_ += count;
  }
  eval_metrics::EvalReport report() const override {
    return {.metrics = {{"loss", sum_ / count_}}};
  }

 private:
  const CustomBatch& layout_;
  double sum_ = 0, count_ = 0;
};

class Custom : public Task {
 public:
  Custom(std::unique_ptr<Task> maybe_evaluated, CustomBatch layout)
      : maybe_evaluated_(std::move(maybe_evaluated)), layout_(std::move(layout)) {}

  LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const override {
    const LossArguments arguments = layout_.arguments(batch);
    return {.loss = model.loss(arguments.inputs, arguments.targets)};
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions& options) const override {
    if (maybe_evaluated_ != nullptr) return maybe_evaluated_->start_evaluation(options);
    return std::make_unique<LossEvaluation>(layout_);
  }

 private:
  const std::unique_ptr<Task> maybe_evaluated_;
  const CustomBatch layout_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_custom(std::unique_ptr<Task> maybe_evaluated,
                                          const config::Normalize* maybe_normalize,
                                          const Samples& sample) {
  STOKER_ASSIGN_OR_RETURN(model::LossBatch layout, model::make_loss_batch(sample));
  STOKER_ASSIGN_OR_RETURN(ModelInput input, find_model_input(maybe_normalize, sample, "custom"));
  return std::unique_ptr<Task>(std::make_unique<Custom>(
      std::move(maybe_evaluated), CustomBatch(std::move(layout), std::move(input))));
}

}  // namespace stoker::task
