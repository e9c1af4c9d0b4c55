// language_model: predict each token from those before it.
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "shared/model/data_fit.h"
#include "shared/score/language_model_score.h"
#include "shared/task/host_values.h"
#include "shared/task/kinds.h"
#include "shared/task/prepare_input.h"
#include "shared/task/sequence_mask.h"

namespace stoker::task {
namespace {

struct Prediction {
  at::Tensor logits;  // [batch * time, vocab], F32
  at::Tensor target;  // [batch * time], I64
};

// Where they stand in a batch.
struct Places {
  size_t tokens = 0;
  std::optional<size_t> length;  // of samples that are padded
};

Prediction predict(model::Model& model, const Batch& batch, const Places& places) {
  const at::Tensor tokens = prepare_tokens(batch.at(places.tokens));
  const int64_t time = tokens.size(1) - 1;
  const at::Tensor logits = model.forward(tokens.narrow(1, 0, time));
  at::Tensor next = tokens.narrow(1, 1, time);
  if (places.length) next = without_padding(next, batch.at(*places.length));
  return {logits.flatten(0, 1).to(at::kFloat), next.flatten()};
}

class LanguageModelEvaluation : public Evaluation {
 public:
  LanguageModelEvaluation(Places places, bool bytes) : places_(places), score_(bytes) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    auto [logits, target] = predict(model, batch, places_);
    if (places_.length) {
      const at::Tensor counts = target.ge(0).nonzero().flatten();
      logits = logits.index_select(0, counts);
      target = target.index_select(0, counts);
    }
    const HostValues<float> losses(at::cross_entropy_loss(logits, target, {}, at::Reduction::None));
    const HostValues<int64_t> targets(target);
    const HostValues<int64_t> predictions(logits.argmax(1));
    score_.add(losses.span(), targets.span(), predictions.span());
  }

  score::Report report() const override { return score_.report(); }

 private:
  const Places places_;
  score::LanguageModelScore score_;
};

class LanguageModel : public Task {
 public:
  LanguageModel(Places places, bool bytes) : places_(places), bytes_(bytes) {}

  at::Tensor loss(model::Model& model, const Batch& batch) const override {
    const auto [logits, target] = predict(model, batch, places_);
    if (!places_.length) return at::cross_entropy_loss(logits, target);
    return mean_loss(at::cross_entropy_loss(logits, target, {}, at::Reduction::None), target);
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationSettings&) const override {
    return std::make_unique<LanguageModelEvaluation>(places_, bytes_);
  }

 private:
  const Places places_;
  const bool bytes_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_language_model(const Samples& sample, uint64_t) {
  STOKER_ASSIGN_OR_RETURN(const size_t at, component(sample, "tokens", "language_model"));
  if (sample[at].shape.size() != 1 || sample[at].shape[0] < 2) {
    return Status(Code::kMismatch, "task language_model needs `tokens` [2 or more]; the data has " +
                                       to_string(sample[at]));
  }
  const Places places{.tokens = at, .length = maybe_length(sample)};
  return std::unique_ptr<Task>(
      std::make_unique<LanguageModel>(places, sample[at].dtype == DType::kU8));
}

}  // namespace stoker::task
