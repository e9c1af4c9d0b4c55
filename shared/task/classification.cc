// classification: one label a sample.
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>

#include "shared/model/data_fit.h"
#include "shared/task/batch_mixer.h"
#include "shared/task/kinds.h"
#include "shared/task/label_loss.h"
#include "shared/task/label_scorer.h"
#include "shared/task/model_input.h"

namespace stoker::task {
namespace {

struct InputAndLabel {
  ModelInput input;
  size_t label = 0;  // where in a batch
};

// The shares of a mixed batch's labels, for a model that knows more classes than the data.
at::Tensor widen(const at::Tensor& label, int64_t outputs) {
  if (!label.is_floating_point() || label.size(1) >= outputs) return label;
  return at::constant_pad_nd(label, {0, outputs - label.size(1)});
}

class ClassificationEvaluation : public Evaluation {
 public:
  ClassificationEvaluation(InputAndLabel places, uint64_t classes,
                           const EvaluationSettings& settings, std::vector<double> weights)
      : places_(std::move(places)), scorer_(classes, settings, std::move(weights)) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    scorer_.add(outputs_of(model, batch, places_.input), batch.at(places_.label));
  }

  score::Report report() const override { return scorer_.report(); }

 private:
  const InputAndLabel places_;
  LabelScorer scorer_;
};

class Classification : public Task {
 public:
  Classification(const config::ClassificationTask& config, InputAndLabel places, uint64_t classes,
                 dataset::MixSettings mix, ClassWeights weights)
      : places_(std::move(places)),
        classes_(classes),
        mix_(mix),
        loss_(std::move(weights), config.label_smoothing),
        aux_weight_(config.aux_loss_weight) {}

  Batch mixed(Batch batch, uint64_t seed, uint64_t ticket) const override {
    if (!mix_.any()) return batch;
    const dataset::BatchMix mix = dataset::draw_mix(mix_, seed, ticket);
    batch.at(places_.input.values) = mix_inputs(values_of(batch, places_.input), mix);
    at::Tensor& label = batch.at(places_.label);
    label = mix_labels(label, static_cast<int64_t>(classes_), mix);
    return batch;
  }
  at::Tensor loss(model::Model& model, const Batch& batch) const override {
    const model::Outputs outputs = training_outputs_of(model, batch, places_.input);
    const at::Tensor main = loss_of(outputs.main, batch);
    if (!outputs.auxiliary.defined()) return main;
    return main + aux_weight_ * loss_of(outputs.auxiliary, batch);
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationSettings& settings) const override {
    return std::make_unique<ClassificationEvaluation>(places_, classes_, settings,
                                                      loss_.weights().numbers());
  }

 private:
  at::Tensor loss_of(const at::Tensor& outputs, const Batch& batch) const {
    const at::Tensor logits = outputs.to(at::kFloat);
    return loss_.mean(logits, widen(batch.at(places_.label), logits.size(1)));
  }

  const InputAndLabel places_;
  const uint64_t classes_;
  const dataset::MixSettings mix_;
  const LabelLoss loss_;
  const double aux_weight_;
};

// A sum of two samples is one where they are numbers of the same places.
Result<dataset::MixSettings> mix_settings_of(const std::vector<config::BatchTransform>& transforms,
                                             const Samples& sample, const ModelInput& input) {
  STOKER_ASSIGN_OR_RETURN(const auto mix, dataset::mix_settings(transforms, sample[input.values]));
  if (!mix.any() || (!input.is_tokens && !input.maybe_length)) return mix;
  return Status(Code::kMismatch,
                "data.train.batch_transforms: mixup and cutmix do not mix tokens, nor samples of "
                "various lengths; the data has " +
                    model::describe(sample));
}

}  // namespace

Result<std::unique_ptr<Task>> make_classification(
    const config::ClassificationTask& config, const config::Normalize* maybe_normalize,
    const Samples& sample, uint64_t classes,
    const std::vector<config::BatchTransform>& batch_transforms) {
  InputAndLabel places;
  STOKER_ASSIGN_OR_RETURN(places.input,
                          find_model_input(maybe_normalize, sample, "classification"));
  STOKER_ASSIGN_OR_RETURN(places.label, component(sample, "label", "classification"));
  const TensorSpec& label = sample[places.label];
  if (label.dtype != DType::kI64 || !label.shape.empty() || classes < 2) {
    return Status(Code::kMismatch,
                  "task classification needs `label` I64 [] of 2 or more classes; the data has " +
                      to_string(label) + " of " + std::to_string(classes) + " classes");
  }
  STOKER_ASSIGN_OR_RETURN(const auto mix, mix_settings_of(batch_transforms, sample, places.input));
  STOKER_ASSIGN_OR_RETURN(
      ClassWeights weights,
      ClassWeights::of(config.class_weights.values, "task.class_weights", classes, "classes"));
  return std::unique_ptr<Task>(std::make_unique<Classification>(config, std::move(places), classes,
                                                                mix, std::move(weights)));
}

}  // namespace stoker::task
