// sequence_labeling: a label for each step of a sequence.
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "shared/task/kinds.h"
#include "shared/task/label_loss.h"
#include "shared/task/label_scorer.h"
#include "shared/task/sequence_labels.h"

namespace stoker::task {
namespace {

// Of all steps of all samples, one after the other.
struct Tags {
  at::Tensor logits;  // F32 [batch * steps, outputs]
  at::Tensor labels;  // I64 [batch * steps]; kIgnoredLabel where a step does not count
};

Tags tags_of(model::Model& model, const Batch& batch, const SequenceLabels& places) {
  const at::Tensor logits = step_outputs_of(model, batch, places.input);
  at::Tensor labels = batch.at(places.labels);
  TORCH_CHECK(labels.size(1) == logits.size(1), "a sample has ", logits.size(1), " steps and ",
              labels.size(1), " labels");
  const at::Tensor length = length_of(batch, places.input, logits.size(1));
  if (length.defined()) labels = without_padding(labels, length);
  return {logits.flatten(0, 1), labels.flatten()};
}

class TaggingEvaluation : public Evaluation {
 public:
  TaggingEvaluation(SequenceLabels places, uint64_t classes, const EvaluationSettings& settings,
                    std::vector<double> weights)
      : places_(std::move(places)), scorer_(classes, settings, std::move(weights)) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const auto [logits, labels] = tags_of(model, batch, places_);
    const auto [counted, their_labels] = only_counted(logits, labels);
    scorer_.add(counted, their_labels);
  }

  score::Report report() const override { return scorer_.report(); }

 private:
  const SequenceLabels places_;
  LabelScorer scorer_;
};

class Tagging : public Task {
 public:
  Tagging(const config::SequenceLabelingTask& config, SequenceLabels places, uint64_t classes,
          ClassWeights weights)
      : places_(std::move(places)),
        classes_(classes),
        loss_(std::move(weights), config.label_smoothing) {}

  at::Tensor loss(model::Model& model, const Batch& batch) const override {
    const auto [logits, labels] = tags_of(model, batch, places_);
    return loss_.mean_of_counted(logits, labels);
  }
  // What is counted there is labels, not samples, so none could be shown as a mistake.
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationSettings& settings) const override {
    return std::make_unique<TaggingEvaluation>(
        places_, classes_, EvaluationSettings{.top_k = settings.top_k, .mistakes = 0},
        loss_.weights().numbers());
  }

 private:
  const SequenceLabels places_;
  const uint64_t classes_;
  const LabelLoss loss_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_tagging(const config::SequenceLabelingTask& config,
                                           const config::Normalize* maybe_normalize,
                                           const Samples& sample, uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(
      SequenceLabels places,
      find_sequence_labels(maybe_normalize, sample, classes, "sequence_labeling"));
  STOKER_ASSIGN_OR_RETURN(const int64_t steps, steps_of(places.input, sample, "sequence_labeling"));
  const TensorSpec& labels = sample[places.labels];
  if (labels.shape[0] != steps) {
    return Status(Code::kMismatch,
                  "task sequence_labeling needs a label for each step; the data has " +
                      to_string(sample[places.input.values]) + " and " + to_string(labels));
  }
  STOKER_ASSIGN_OR_RETURN(
      ClassWeights weights,
      ClassWeights::of(config.class_weights, "task.class_weights", classes, "classes"));
  return std::unique_ptr<Task>(
      std::make_unique<Tagging>(config, std::move(places), classes, std::move(weights)));
}

}  // namespace stoker::task
