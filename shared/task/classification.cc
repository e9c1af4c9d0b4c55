// classification: one label a sample.
#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>

#include "shared/model/data_fit.h"
#include "shared/score/classification_score.h"
#include "shared/task/batch_mixer.h"
#include "shared/task/host_values.h"
#include "shared/task/kinds.h"
#include "shared/task/prepare_input.h"

namespace stoker::task {
namespace {

constexpr int64_t kNoIgnoredLabel = -100;  // PyTorch's: no class has this number

struct Places {
  size_t input = 0;
  size_t label = 0;
};

struct Inputs {
  Places places;
  Normalization normalization;
};

at::Tensor prepared(const Batch& batch, const Inputs& inputs) {
  return prepare_input(batch.at(inputs.places.input), inputs.normalization);
}

// The shares of a mixed batch's labels, for a model that knows more classes than the data.
at::Tensor widen(const at::Tensor& label, int64_t outputs) {
  if (!label.is_floating_point() || label.size(1) >= outputs) return label;
  return at::constant_pad_nd(label, {0, outputs - label.size(1)});
}

class ClassificationEvaluation : public Evaluation {
 public:
  ClassificationEvaluation(Inputs inputs, uint64_t classes, const EvaluationSettings& settings)
      : inputs_(std::move(inputs)), classes_(classes), settings_(settings) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const at::Tensor logits = model.forward(prepared(batch, inputs_)).to(at::kFloat);
    if (!score_) start(static_cast<uint64_t>(logits.size(1)));
    const at::Tensor& label = batch.at(inputs_.places.label);
    const HostValues<float> losses(at::cross_entropy_loss(logits, label, {}, at::Reduction::None));
    const HostValues<int64_t> labels(label);
    const HostValues<int64_t> predictions(logits.argmax(1));
    const HostValues<float> confidences(at::softmax(logits, 1).amax(1));
    const HostValues<uint8_t> in_top_k(is_in_top_k(logits, label));
    score_->add(
        {losses.span(), labels.span(), predictions.span(), confidences.span(), in_top_k.span()});
  }

  score::Report report() const override {
    if (score_) return score_->report();
    return score::ClassificationScore({.classes = classes_}).report();
  }

 private:
  // A model may know more classes than the data has labels of.
  void start(uint64_t outputs) {
    const uint64_t classes = std::max(classes_, outputs);
    const bool has_top_k = settings_.top_k > 1 && static_cast<uint64_t>(settings_.top_k) < outputs;
    top_k_ = has_top_k ? settings_.top_k : 0;
    score_.emplace(score::ClassificationScore::Settings{
        .classes = classes, .top_k = top_k_, .mistakes = settings_.mistakes});
  }

  at::Tensor is_in_top_k(const at::Tensor& logits, const at::Tensor& label) const {
    if (top_k_ == 0) return at::empty({0}, at::kByte);
    const at::Tensor likely = std::get<1>(at::topk(logits, top_k_, 1));
    return likely.eq(label.unsqueeze(1)).any(1).to(at::kByte);
  }

  const Inputs inputs_;
  const uint64_t classes_;
  const EvaluationSettings settings_;
  int top_k_ = 0;
  std::optional<score::ClassificationScore> score_;  // from the first batch on
};

class Classification : public Task {
 public:
  Classification(const config::TaskConfig& config, Inputs inputs, uint64_t classes,
                 dataset::MixSettings mix)
      : inputs_(std::move(inputs)),
        classes_(classes),
        mix_(mix),
        label_smoothing_(config.label_smoothing),
        aux_weight_(config.aux_weight) {}

  Batch mixed(Batch batch, uint64_t seed, uint64_t ticket) const override {
    if (!mix_.any()) return batch;
    const dataset::BatchMix mix = dataset::draw_mix(mix_, seed, ticket);
    at::Tensor& input = batch.at(inputs_.places.input);
    at::Tensor& label = batch.at(inputs_.places.label);
    input = mix_inputs(prepare_input(input, inputs_.normalization), mix);
    label = mix_labels(label, static_cast<int64_t>(classes_), mix);
    return batch;
  }
  at::Tensor loss(model::Model& model, const Batch& batch) const override {
    const model::Outputs outputs = model.forward_training(prepared(batch, inputs_));
    const at::Tensor main = loss_of(outputs.main, batch);
    if (!outputs.auxiliary.defined()) return main;
    return main + aux_weight_ * loss_of(outputs.auxiliary, batch);
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationSettings& settings) const override {
    return std::make_unique<ClassificationEvaluation>(inputs_, classes_, settings);
  }

 private:
  at::Tensor loss_of(const at::Tensor& outputs, const Batch& batch) const {
    const at::Tensor logits = outputs.to(at::kFloat);
    const at::Tensor label = widen(batch.at(inputs_.places.label), logits.size(1));
    return at::cross_entropy_loss(logits, label, {}, at::Reduction::Mean, kNoIgnoredLabel,
                                  label_smoothing_);
  }

  const Inputs inputs_;
  const uint64_t classes_;
  const dataset::MixSettings mix_;
  const double label_smoothing_;
  const double aux_weight_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_classification(const config::TaskConfig& config,
                                                  const Samples& sample, uint64_t classes) {
  Places places;
  STOKER_ASSIGN_OR_RETURN(places.input, component(sample, "input", "classification"));
  STOKER_ASSIGN_OR_RETURN(places.label, component(sample, "label", "classification"));
  const TensorSpec& label = sample[places.label];
  if (label.dtype != DType::kI64 || !label.shape.empty() || classes < 2) {
    return Status(Code::kMismatch,
                  "task classification needs `label` I64 [] of 2 or more classes; the data has " +
                      to_string(label) + " of " + std::to_string(classes) + " classes");
  }
  Inputs inputs{.places = places, .normalization = {}};
  STOKER_ASSIGN_OR_RETURN(inputs.normalization, normalization_of(config, sample[places.input]));
  STOKER_ASSIGN_OR_RETURN(const auto mix, dataset::mix_settings(config, sample[places.input]));
  return std::unique_ptr<Task>(
      std::make_unique<Classification>(config, std::move(inputs), classes, mix));
}

}  // namespace stoker::task
