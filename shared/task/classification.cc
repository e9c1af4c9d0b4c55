// classification: one label per sample.
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>

#include "shared/model/data_compatibility.h"
#include "shared/task/label_loss.h"
#include "shared/task/label_metrics.h"
#include "shared/task/mixup_cutmix.h"
#include "shared/task/model_input.h"
#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

struct ClassificationBatch {
  ModelInput input;
  size_t label = 0;  // index in a batch
};

// Pads the class probabilities of a mixed batch for a model with more outputs than classes.
at::Tensor widen(const at::Tensor& label, int64_t outputs) {
  if (!label.is_floating_point() || label.size(1) >= outputs) return label;
  return at::constant_pad_nd(label, {0, outputs - label.size(1)});
}

class ClassificationEvaluation : public Evaluation {
 public:
  ClassificationEvaluation(ClassificationBatch indices, uint64_t classes,
                           const EvaluationOptions& options, const LabelLoss& loss)
      : indices_(std::move(indices)),
        metrics_(classes, options, loss.weights().values(), loss.maybe_gamma()) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    metrics_.add(model_outputs(model, batch, indices_.input), batch.at(indices_.label));
  }

  eval_metrics::EvalReport report() const override { return metrics_.report(); }

 private:
  const ClassificationBatch indices_;
  LabelMetrics metrics_;
};

class Classification : public Task {
 public:
  Classification(const config::ClassificationTask& config, ClassificationBatch indices,
                 uint64_t classes, data::transform::MixOptions mix, ClassWeights weights)
      : indices_(std::move(indices)),
        classes_(classes),
        mix_(mix),
        loss_(LabelLoss::of(config, std::move(weights))),
        aux_weight_(config.aux_loss_weight) {}

  Batch mixed(Batch batch, uint64_t seed, uint64_t ticket) const override {
    if (!mix_.any()) return batch;
    const data::transform::MixParameters mix = data::transform::sample_mix(mix_, seed, ticket);
    batch.at(indices_.input.values) = mix_inputs(input_values(batch, indices_.input), mix);
    at::Tensor& label = batch.at(indices_.label);
    label = mix_labels(label, static_cast<int64_t>(classes_), mix);
    return batch;
  }
  std::vector<std::string> training_metrics(const model::Model& /*model*/) const override {
    return {"accuracy"};
  }
  int64_t counts_per_sample(const model::Model& /*model*/) const override {
    return loss_.weights().has_weights() ? 1 : 0;
  }
  LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const override {
    const model::Outputs outputs = training_outputs(model, batch, indices_.input);
    return with_accuracy(total_loss(outputs, batch), outputs.logits, batch.at(indices_.label));
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions& options) const override {
    return std::make_unique<ClassificationEvaluation>(indices_, classes_, options, loss_);
  }

 private:
  LossTerm total_loss(const model::Outputs& outputs, const Batch& batch) const {
    const LossTerm main = loss_of(outputs.logits, batch);
    if (!outputs.aux_logits.defined()) return main;
    return {main.mean + aux_weight_ * loss_of(outputs.aux_logits, batch).mean, main.maybe_count};
  }
  LossTerm loss_of(const at::Tensor& outputs, const Batch& batch) const {
    const at::Tensor logits = outputs.to(at::kFloat);
    return loss_.mean(logits, widen(batch.at(indices_.label), logits.size(1)));
  }

  const ClassificationBatch indices_;
  const uint64_t classes_;
  const data::transform::MixOptions mix_;
  const LabelLoss loss_;
  const double aux_weight_;
};

// Mixing two samples is meaningful only for numeric inputs of the same shape.
Result<data::transform::MixOptions> find_mix_options(
    const std::vector<config::BatchTransform>& transforms, const Samples& sample,
    const ModelInput& input) {
  STOKER_ASSIGN_OR_RETURN(const auto mix,
                          data::transform::make_mix_options(transforms, sample[input.values]));
  if (!mix.any() || (!input.is_tokens && !input.maybe_length)) return mix;
  return Status(
      StatusCode::kMismatch,
      "data.train.batch_transforms: mixup and cutmix support neither tokens nor samples of "
      "variable length; the data has " +
          model::describe(sample));
}

}  // namespace

Result<std::unique_ptr<Task>> make_classification(
    const config::ClassificationTask& config, const config::Normalize* maybe_normalize,
    const Samples& sample, uint64_t classes,
    const std::vector<config::BatchTransform>& batch_transforms) {
  if (model::find_tensor(sample, TensorRole::kMask) != nullptr)
    return make_pixel_classification(config, maybe_normalize, sample, classes, batch_transforms);
  ClassificationBatch indices;
  STOKER_ASSIGN_OR_RETURN(indices.input,
                          find_model_input(maybe_normalize, sample, "classification"));
  STOKER_ASSIGN_OR_RETURN(indices.label,
                          component_index(sample, TensorRole::kLabel, "classification"));
  const TensorSpec& label = sample[indices.label];
  if (label.dtype != DType::kI64 || !label.shape.empty() || classes < 2) {
    return Status(StatusCode::kMismatch,
                  "task classification needs `label` I64 [] of 2 or more classes; the data has " +
                      to_string(label) + " of " + std::to_string(classes) + " classes");
  }
  STOKER_ASSIGN_OR_RETURN(const auto mix,
                          find_mix_options(batch_transforms, sample, indices.input));
  STOKER_ASSIGN_OR_RETURN(
      ClassWeights weights,
      ClassWeights::of(config.class_weights.values, "task.class_weights", classes, "classes"));
  return std::unique_ptr<Task>(std::make_unique<Classification>(config, std::move(indices), classes,
                                                                mix, std::move(weights)));
}

}  // namespace stoker::task
