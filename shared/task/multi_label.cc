// multi_label: each label of a sample is true or not by itself: binary cross entropy of the logits.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>

#include "shared/model/data_fit.h"
#include "shared/score/multi_label_score.h"
#include "shared/task/host_values.h"
#include "shared/task/kinds.h"
#include "shared/task/prepare_input.h"

namespace stoker::task {
namespace {

struct Places {
  size_t input = 0;
  size_t target = 0;
  Normalization normalization = {};
};

at::Tensor logits_of(model::Model& model, const Batch& batch, const Places& places) {
  const at::Tensor& input = batch.at(places.input);
  return model.forward(prepare_input(input, places.normalization)).to(at::kFloat);
}

class MultiLabelEvaluation : public Evaluation {
 public:
  MultiLabelEvaluation(Places places, int64_t labels)
      : places_(std::move(places)), score_(static_cast<size_t>(labels)) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const at::Tensor logits = logits_of(model, batch, places_);
    const at::Tensor& target = batch.at(places_.target);
    const HostValues<float> losses(
        at::binary_cross_entropy_with_logits(logits, target, {}, {}, at::Reduction::None));
    const HostValues<float> scores(logits);
    const HostValues<float> targets(target);
    score_.add(losses.span(), scores.span(), targets.span());
  }

  score::Report report() const override { return score_.report(); }

 private:
  const Places places_;
  score::MultiLabelScore score_;
};

class MultiLabel : public Task {
 public:
  MultiLabel(Places places, int64_t labels) : places_(std::move(places)), labels_(labels) {}

  at::Tensor loss(model::Model& model, const Batch& batch) const override {
    return at::binary_cross_entropy_with_logits(logits_of(model, batch, places_),
                                                batch.at(places_.target));
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationSettings&) const override {
    return std::make_unique<MultiLabelEvaluation>(places_, labels_);
  }

 private:
  const Places places_;
  const int64_t labels_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_multi_label(const config::TaskConfig& config,
                                               const Samples& sample, uint64_t classes) {
  Places places;
  STOKER_ASSIGN_OR_RETURN(places.input, component(sample, "input", "multi_label"));
  STOKER_ASSIGN_OR_RETURN(places.target, component(sample, "target", "multi_label"));
  const TensorSpec& target = sample[places.target];
  if (target.dtype != DType::kF32 || target.shape.size() != 1 || classes != 0) {
    return Status(Code::kMismatch,
                  "task multi_label needs `target` F32 [labels] of 0 and 1; the data has " +
                      to_string(target) + " of " + std::to_string(classes) + " classes");
  }
  STOKER_ASSIGN_OR_RETURN(places.normalization, normalization_of(config, sample[places.input]));
  return std::unique_ptr<Task>(std::make_unique<MultiLabel>(std::move(places), target.shape[0]));
}

}  // namespace stoker::task
