// multilabel_classification: each label of a sample is true or not by itself: binary cross entropy
// of the logits.
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>

#include "shared/score/multi_label_score.h"
#include "shared/task/class_weights.h"
#include "shared/task/host_values.h"
#include "shared/task/input_target.h"
#include "shared/task/kinds.h"

namespace stoker::task {
namespace {

// A weight is what a label that is true counts, as BCEWithLogitsLoss's pos_weight.
at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& target, const ClassWeights& weights,
                   int64_t reduction) {
  const auto maybe_weights = weights.any() ? std::optional(weights.beside(logits)) : std::nullopt;
  return at::binary_cross_entropy_with_logits(logits, target, {}, maybe_weights, reduction);
}

class MultiLabelEvaluation : public Evaluation {
 public:
  MultiLabelEvaluation(InputAndTarget places, ClassWeights weights)
      : places_(std::move(places)),
        weights_(std::move(weights)),
        score_(static_cast<size_t>(places_.width)) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const at::Tensor logits = outputs_of(model, batch, places_.input);
    const at::Tensor& target = batch.at(places_.target);
    const HostValues<float> losses(loss_of(logits, target, weights_, at::Reduction::None));
    const HostValues<float> scores(logits);
    const HostValues<float> targets(target);
    score_.add(losses.span(), scores.span(), targets.span());
  }

  score::Report report() const override { return score_.report(); }

 private:
  const InputAndTarget places_;
  const ClassWeights weights_;
  score::MultiLabelScore score_;
};

class MultiLabel : public Task {
 public:
  MultiLabel(InputAndTarget places, ClassWeights weights)
      : places_(std::move(places)), weights_(std::move(weights)) {}

  at::Tensor loss(model::Model& model, const Batch& batch) const override {
    return loss_of(outputs_of(model, batch, places_.input), batch.at(places_.target), weights_,
                   at::Reduction::Mean);
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationSettings&) const override {
    return std::make_unique<MultiLabelEvaluation>(places_, weights_);
  }

 private:
  const InputAndTarget places_;
  const ClassWeights weights_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_multi_label(const config::MultilabelClassificationTask& config,
                                               const config::Normalize* maybe_normalize,
                                               const Samples& sample, uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(
      InputAndTarget places,
      find_input_and_target(maybe_normalize, sample, classes, "multilabel_classification",
                            "`target` F32 [labels] of 0 and 1"));
  STOKER_ASSIGN_OR_RETURN(
      ClassWeights weights,
      ClassWeights::of(config.pos_weight, "task.pos_weight", static_cast<uint64_t>(places.width),
                       "labels in its target"));
  return std::unique_ptr<Task>(std::make_unique<MultiLabel>(std::move(places), std::move(weights)));
}

}  // namespace stoker::task
