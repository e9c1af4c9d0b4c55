// sequence_labeling: one label per time step.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "shared/eval_metrics/entity_metrics.h"
#include "shared/task/host_values.h"
#include "shared/task/label_loss.h"
#include "shared/task/label_metrics.h"
#include "shared/task/sequence_labels.h"
#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

// All steps of all samples, concatenated.
struct LabeledSteps {
  at::Tensor logits;  // F32 [batch * steps, outputs]
  at::Tensor labels;  // I64 [batch * steps]; kIgnoredLabel if the step is ignored
};

LabeledSteps predict_steps(model::Model& model, const Batch& batch, const SequenceLabels& indices) {
  const at::Tensor logits = step_outputs(model, batch, indices.input);
  at::Tensor labels = batch.at(indices.labels);
  TORCH_CHECK(labels.size(1) == logits.size(1), "a sample has ", logits.size(1), " steps and ",
              labels.size(1), " labels");
  const at::Tensor length = sequence_lengths(batch, indices.input, logits.size(1));
  if (length.defined()) labels = without_padding(labels, length);
  return {logits.flatten(0, 1), labels.flatten()};
}

class SequenceLabelingEvaluation : public Evaluation {
 public:
  SequenceLabelingEvaluation(SequenceLabels indices, uint64_t classes,
                             const EvaluationOptions& options, const LabelLoss& loss,
                             const std::vector<std::string>& tags)
      : indices_(std::move(indices)),
        metrics_(classes, options, loss.weights().values(), loss.maybe_gamma()) {
    if (!tags.empty()) entities_.emplace(tags);
  }

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const auto [logits, labels] = predict_steps(model, batch, indices_);
    const auto [valid_logits, valid_labels] = drop_ignored_labels(logits, labels);
    metrics_.add(valid_logits, valid_labels);
    if (entities_) add_entities(logits.argmax(1), labels, batch.at(indices_.labels).size(0));
  }

  eval_metrics::EvalReport report() const override {
    eval_metrics::EvalReport report = metrics_.report();
    if (entities_)
      for (auto& metric : entities_->metrics()) report.metrics.push_back(std::move(metric));
    return report;
  }

 private:
  // Of each sample, without the steps that are ignored.
  void add_entities(const at::Tensor& predictions, const at::Tensor& labels, int64_t samples) {
    const HostValues<int64_t> predicted(predictions), labeled(labels);
    const size_t steps = labeled.span().size() / static_cast<size_t>(samples);
    for (size_t first = 0; first < labeled.span().size(); first += steps) {
      std::vector<int64_t> sequence, prediction;
      for (size_t i = first; i < first + steps; ++i) {
        if (labeled.span()[i] == kIgnoredLabel) continue;
        sequence.push_back(labeled.span()[i]);
        prediction.push_back(predicted.span()[i]);
      }
      entities_->add(sequence, prediction);
    }
  }

  const SequenceLabels indices_;
  LabelMetrics metrics_;
  std::optional<eval_metrics::EntityMetrics> entities_;
};

class SequenceLabeling : public Task {
 public:
  SequenceLabeling(const config::SequenceLabelingTask& config, SequenceLabels indices,
                   int64_t steps, uint64_t classes, ClassWeights weights)
      : indices_(std::move(indices)),
        steps_(steps),
        classes_(classes),
        loss_(LabelLoss::of(config, std::move(weights))),
        tags_(config.tags) {}

  std::vector<std::string> training_metrics(const model::Model& /*model*/) const override {
    return {"accuracy"};
  }
  int64_t counts_per_sample(const model::Model& /*model*/) const override { return steps_; }
  LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const override {
    const auto [logits, labels] = predict_steps(model, batch, indices_);
    return with_accuracy_over_valid(loss_.mean_over_valid(logits, labels), logits, labels);
  }
  // Metrics count labels, not samples, so misclassified samples are not supported.
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions& options) const override {
    return std::make_unique<SequenceLabelingEvaluation>(
        indices_, classes_, EvaluationOptions{.top_k = options.top_k, .misclassified = 0}, loss_,
        tags_);
  }

 private:
  const SequenceLabels indices_;
  const int64_t steps_;
  const uint64_t classes_;
  const LabelLoss loss_;
  const std::vector<std::string> tags_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_sequence_labeling(const config::SequenceLabelingTask& config,
                                                     const config::Normalize* maybe_normalize,
                                                     const Samples& sample, uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(
      SequenceLabels indices,
      find_sequence_labels(maybe_normalize, sample, classes, "sequence_labeling"));
  STOKER_ASSIGN_OR_RETURN(const int64_t steps,
                          num_time_steps(indices.input, sample, "sequence_labeling"));
  const TensorSpec& labels = sample[indices.labels];
  if (labels.shape[0] != steps) {
    return Status(StatusCode::kMismatch,
                  "task sequence_labeling needs a label for each step; the data has " +
                      to_string(sample[indices.input.values]) + " and " + to_string(labels));
  }
  if (!config.tags.empty() && config.tags.size() != classes)
    return Status(StatusCode::kMismatch, "task.tags: has " + std::to_string(config.tags.size()) +
                                             " tags; the data has " + std::to_string(classes) +
                                             " classes");
  STOKER_ASSIGN_OR_RETURN(
      ClassWeights weights,
      ClassWeights::of(config.class_weights, "task.class_weights", classes, "classes"));
  return std::unique_ptr<Task>(std::make_unique<SequenceLabeling>(config, std::move(indices), steps,
                                                                  classes, std::move(weights)));
}

}  // namespace stoker::task
