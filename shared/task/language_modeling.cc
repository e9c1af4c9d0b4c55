// language_modeling: predict each token from the previous ones.
#include <tuple>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "shared/eval_metrics/eval_metrics.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/linear_cross_entropy.h"
#include "shared/task/host_values.h"
#include "shared/task/label_loss.h"
#include "shared/task/sequence_labels.h"
#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

// The inputs [batch, time] of the model, and for each the token that follows; kIgnoredLabel for
// padding. A causal model needs no lengths: padding comes after all outputs that are evaluated.
struct InputAndNext {
  at::Tensor input, next;
};

InputAndNext split_tokens(const Batch& batch, const ModelInput& input) {
  const at::Tensor tokens = input_values(batch, input);
  const int64_t time = tokens.size(1) - 1;
  at::Tensor next = tokens.narrow(1, 1, time);
  if (input.maybe_length)
    next = without_padding(next, sequence_lengths(batch, input, time + 1) - 1);
  return {tokens.narrow(1, 0, time), std::move(next)};
}

struct Prediction {
  at::Tensor logits;  // [batch * time, vocab], F32
  at::Tensor target;  // [batch * time], I64; kIgnoredLabel for padding
};

Prediction predict(model::Model& model, const InputAndNext& tokens) {
  const at::Tensor logits = model.forward(tokens.input);
  return {logits.flatten(0, 1).to(at::kFloat), tokens.next.flatten()};
}

class LanguageModelEvaluation : public Evaluation {
 public:
  LanguageModelEvaluation(ModelInput input, bool bytes)
      : input_(std::move(input)), metrics_(bytes) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    auto [logits, target] = predict(model, split_tokens(batch, input_));
    if (input_.maybe_length) std::tie(logits, target) = drop_ignored_labels(logits, target);
    const HostValues<float> losses(at::cross_entropy_loss(logits, target, {}, at::Reduction::None));
    const HostValues<int64_t> targets(target);
    const HostValues<int64_t> predictions(logits.argmax(1));
    metrics_.add(losses.span(), targets.span(), predictions.span());
  }

  eval_metrics::EvalReport report() const override { return metrics_.report(); }

 private:
  const ModelInput input_;
  eval_metrics::LanguageModelingMetrics metrics_;
};

class LanguageModel : public Task {
 public:
  LanguageModel(ModelInput input, bool bytes) : input_(std::move(input)), bytes_(bytes) {}

  LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const override {
    const InputAndNext tokens = split_tokens(batch, input_);
    if (model::has_linear_cross_entropy(tokens.input.device())) {
      if (const model::HeadInput head = model.forward_features(tokens.input); head.weight.defined())
        return {.loss = model::linear_cross_entropy(head.features.flatten(0, 1), head.weight,
                                                    tokens.next.flatten(), kIgnoredLabel)};
    }
    const auto [logits, target] = predict(model, tokens);
    return {.loss = input_.maybe_length ? loss_.mean_over_valid(logits, target)
                                        : loss_.mean(logits, target)};
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions&) const override {
    return std::make_unique<LanguageModelEvaluation>(input_, bytes_);
  }

 private:
  const ModelInput input_;
  const bool bytes_;
  const LabelLoss loss_{{}, /*smoothing=*/0};
};

}  // namespace

Result<std::unique_ptr<Task>> make_language_modeling(const Samples& sample, uint64_t) {
  STOKER_ASSIGN_OR_RETURN(const size_t at,
                          component_index(sample, TensorRole::kTokens, "language_modeling"));
  if (sample[at].shape.size() != 1 || sample[at].shape[0] < 2) {
    return Status(
        StatusCode::kMismatch,
        "task language_modeling needs `tokens` [2 or more]; the data has " + to_string(sample[at]));
  }
  STOKER_ASSIGN_OR_RETURN(
      ModelInput input, find_model_input(/*maybe_normalize=*/nullptr, sample, "language_modeling"));
  return std::unique_ptr<Task>(
      std::make_unique<LanguageModel>(std::move(input), sample[at].dtype == DType::kU8));
}

}  // namespace stoker::task
