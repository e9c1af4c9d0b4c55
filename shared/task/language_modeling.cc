// language_modeling: predict each token from the previous ones.
#include <optional>
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

// The tensors of a batch.
struct TokenTensors {
  ModelInput input;
  std::optional<size_t> maybe_positions;  // samples of several documents
  std::optional<size_t> maybe_labels;  // the tokens that are predicted; kIgnoredLabel: not this one

  // Whether some tokens are not predicted.
  bool has_ignored() const { return input.maybe_length || maybe_positions || maybe_labels; }
};

// The inputs [batch, time] of the model, and for each the token that follows; kIgnoredLabel for
// padding, for tokens that are not to be learned, and for the first token of a document, which does
// not follow from the one before. A causal model needs no lengths: padding comes after all outputs
// that are evaluated.
struct InputAndNext {
  at::Tensor input, next;
  at::Tensor position_ids;  // of the inputs; undefined if each sample is one document
};

InputAndNext split_tokens(const Batch& batch, const TokenTensors& tensors) {
  const at::Tensor tokens = input_values(batch, tensors.input);
  const int64_t time = tokens.size(1) - 1;
  const at::Tensor& targets = tensors.maybe_labels ? batch.at(*tensors.maybe_labels) : tokens;
  InputAndNext split{tokens.narrow(1, 0, time), targets.narrow(1, 1, time), {}};
  if (tensors.input.maybe_length)
    split.next = without_padding(split.next, sequence_lengths(batch, tensors.input, time + 1) - 1);
  if (tensors.maybe_positions) {
    // Limited because the values come from other processes.
    const at::Tensor positions = batch.at(*tensors.maybe_positions).to(at::kLong).clamp(0, time);
    split.next = split.next.masked_fill(positions.narrow(1, 1, time).eq(0), kIgnoredLabel);
    split.position_ids = positions.narrow(1, 0, time).clamp_max(time - 1);
  }
  return split;
}

struct Prediction {
  at::Tensor logits;  // [batch * time, vocab], F32
  at::Tensor target;  // [batch * time], I64; kIgnoredLabel if not predicted
};

Prediction predict(model::Model& model, const InputAndNext& tokens) {
  const at::Tensor logits = tokens.position_ids.defined()
                                ? model.forward_packed(tokens.input, tokens.position_ids)
                                : model.forward(tokens.input);
  return {logits.flatten(0, 1).to(at::kFloat), tokens.next.flatten()};
}

model::HeadInput features(model::Model& model, const InputAndNext& tokens) {
  return tokens.position_ids.defined() ? model.packed_features(tokens.input, tokens.position_ids)
                                       : model.forward_features(tokens.input);
}

// I64: 1 where the first of adjacent labels is, otherwise 0.
at::Tensor begins_of_replies(const at::Tensor& labels) {
  const at::Tensor is_label = labels.ne(kIgnoredLabel);
  const int64_t time = labels.size(1);
  at::Tensor begins = is_label.to(at::kLong);
  begins.narrow(1, 1, time - 1).masked_fill_(is_label.narrow(1, 0, time - 1), 0);
  return begins;
}

class LanguageModelEvaluation : public Evaluation {
 public:
  LanguageModelEvaluation(TokenTensors tensors, bool bytes)
      : tensors_(std::move(tensors)), metrics_(bytes) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const InputAndNext tokens = split_tokens(batch, tensors_);
    auto [logits, target] = predict(model, tokens);
    at::Tensor begins;
    if (tensors_.maybe_labels)
      begins = begins_of_replies(tokens.next).flatten().masked_select(target.ne(kIgnoredLabel));
    if (tensors_.has_ignored()) std::tie(logits, target) = drop_ignored_labels(logits, target);
    const HostValues<float> losses(at::cross_entropy_loss(logits, target, {}, at::Reduction::None));
    const HostValues<int64_t> targets(target);
    const HostValues<int64_t> predictions(logits.argmax(1));
    metrics_.add(losses.span(), targets.span(), predictions.span());
    if (!tensors_.maybe_labels) return;
    const HostValues<int64_t> begins_on_host(begins);
    metrics_.add_replies(targets.span(), predictions.span(), begins_on_host.span());
  }

  eval_metrics::EvalReport report() const override { return metrics_.report(); }

 private:
  const TokenTensors tensors_;
  eval_metrics::LanguageModelingMetrics metrics_;
};

class LanguageModel : public Task {
 public:
  LanguageModel(TokenTensors tensors, bool bytes, int64_t max_targets, double smoothing)
      : tensors_(std::move(tensors)),
        bytes_(bytes),
        max_targets_(max_targets),
        smoothing_(smoothing),
        loss_({}, smoothing) {}

  int64_t counts_per_sample(const model::Model& /*model*/) const override {
    return tensors_.has_ignored() ? max_targets_ : 0;
  }
  LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const override {
    const InputAndNext tokens = split_tokens(batch, tensors_);
    if (smoothing_ == 0 && model::has_linear_cross_entropy(tokens.input.device())) {
      if (const model::HeadInput head = features(model, tokens); head.weight.defined())
        return {
            .loss = {model::linear_cross_entropy(head.features.flatten(0, 1), head.weight,
                                                 tokens.next.flatten(), kIgnoredLabel),
                     tensors_.has_ignored() ? tokens.next.ne(kIgnoredLabel).sum() : at::Tensor()}};
    }
    const auto [logits, target] = predict(model, tokens);
    return {.loss = tensors_.has_ignored() ? loss_.mean_over_valid(logits, target)
                                           : loss_.mean(logits, target)};
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions&) const override {
    return std::make_unique<LanguageModelEvaluation>(tensors_, bytes_);
  }

 private:
  const TokenTensors tensors_;
  const bool bytes_;
  const int64_t max_targets_;  // of a sample
  const double smoothing_;
  const LabelLoss loss_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_language_modeling(const config::LanguageModelingTask& config,
                                                     const Samples& sample) {
  STOKER_ASSIGN_OR_RETURN(const size_t at,
                          component_index(sample, TensorRole::kTokens, "language_modeling"));
  if (sample[at].shape.size() != 1 || sample[at].shape[0] < 2) {
    return Status(
        StatusCode::kMismatch,
        "task language_modeling needs `tokens` [2 or more]; the data has " + to_string(sample[at]));
  }
  STOKER_ASSIGN_OR_RETURN(
      ModelInput input, find_model_input(/*maybe_normalize=*/nullptr, sample, "language_modeling"));
  TokenTensors tensors{.input = std::move(input), .maybe_positions = {}, .maybe_labels = {}};
  for (size_t i = 0; i < sample.size(); ++i) {
    if (sample[i].shape != sample[at].shape) {
      if (role_of(sample[i]) == TensorRole::kLabels)
        return Status(StatusCode::kMismatch,
                      "task language_modeling needs a label per token; the data has " +
                          to_string(sample[at]) + " and " + to_string(sample[i]));
      continue;
    }
    if (role_of(sample[i]) == TensorRole::kPositions) tensors.maybe_positions = i;
    if (role_of(sample[i]) == TensorRole::kLabels) tensors.maybe_labels = i;
  }
  return std::unique_ptr<Task>(std::make_unique<LanguageModel>(
      std::move(tensors), sample[at].dtype == DType::kU8,
      static_cast<int64_t>(sample[at].shape[0]) - 1, config.label_smoothing));
}

}  // namespace stoker::task
