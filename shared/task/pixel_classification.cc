// classification of data with a mask: one label per pixel, as in semantic segmentation.
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "shared/task/label_loss.h"
#include "shared/task/label_metrics.h"
#include "shared/task/model_input.h"
#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

struct PixelBatch {
  ModelInput input;
  size_t mask = 0;  // index in a batch
};

// All pixels of all samples.
struct LabeledPixels {
  at::Tensor logits;  // F32 [pixels, outputs]
  at::Tensor labels;  // I64 [pixels]; kIgnoredLabel if the pixel is ignored
};

LabeledPixels labeled_pixels(const at::Tensor& outputs, const at::Tensor& mask) {
  TORCH_CHECK(
      outputs.dim() == 4 && outputs.size(2) == mask.size(1) && outputs.size(3) == mask.size(2),
      "the task needs an output for each pixel of a mask ", mask.sizes(),
      ", [batch, outputs, height, width]; the model returned ", outputs.sizes());
  return {outputs.to(at::kFloat).permute({0, 2, 3, 1}).flatten(0, 2), pixel_labels(mask).flatten()};
}

class PixelEvaluation : public Evaluation {
 public:
  PixelEvaluation(PixelBatch indices, uint64_t classes, const EvaluationOptions& options,
                  const LabelLoss& loss)
      : indices_(std::move(indices)),
        metrics_(classes, options, loss.weights().values(), loss.maybe_gamma()) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const auto [logits, labels] =
        labeled_pixels(model_outputs(model, batch, indices_.input), batch.at(indices_.mask));
    const auto [valid_logits, valid_labels] = drop_ignored_labels(logits, labels);
    metrics_.add(valid_logits, valid_labels);
  }

  eval_metrics::EvalReport report() const override { return metrics_.report(); }

 private:
  const PixelBatch indices_;
  LabelMetrics metrics_;
};

class PixelClassification : public Task {
 public:
  PixelClassification(const config::ClassificationTask& config, PixelBatch indices, int64_t pixels,
                      uint64_t classes, ClassWeights weights)
      : indices_(std::move(indices)),
        pixels_(pixels),
        classes_(classes),
        loss_(LabelLoss::of(config, std::move(weights))),
        aux_weight_(config.aux_loss_weight) {}

  std::vector<std::string> training_metrics(const model::Model& /*model*/) const override {
    return {"accuracy"};
  }
  int64_t counts_per_sample(const model::Model& /*model*/) const override { return pixels_; }
  LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const override {
    const model::Outputs outputs = training_outputs(model, batch, indices_.input);
    const at::Tensor& mask = batch.at(indices_.mask);
    const auto [logits, labels] = labeled_pixels(outputs.logits, mask);
    LossTerm loss = loss_.mean_over_valid(logits, labels);
    if (outputs.aux_logits.defined()) {
      const LabeledPixels aux = labeled_pixels(outputs.aux_logits, mask);
      loss.mean = loss.mean + aux_weight_ * loss_.mean_over_valid(aux.logits, aux.labels).mean;
    }
    return with_accuracy_over_valid(std::move(loss), logits, labels);
  }
  // Metrics count pixels, not samples, so misclassified samples are not supported. Curves would take
  // all probabilities of all pixels to the host.
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions& options) const override {
    return std::make_unique<PixelEvaluation>(
        indices_, classes_,
        EvaluationOptions{.top_k = options.top_k, .misclassified = 0, .has_pr_curves = false},
        loss_);
  }

 private:
  const PixelBatch indices_;
  const int64_t pixels_;
  const uint64_t classes_;
  const LabelLoss loss_;
  const double aux_weight_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_pixel_classification(
    const config::ClassificationTask& config, const config::Normalize* maybe_normalize,
    const Samples& sample, uint64_t classes,
    const std::vector<config::BatchTransform>& batch_transforms) {
  PixelBatch indices;
  STOKER_ASSIGN_OR_RETURN(indices.input,
                          find_model_input(maybe_normalize, sample, "classification"));
  STOKER_ASSIGN_OR_RETURN(indices.mask,
                          component_index(sample, TensorRole::kMask, "classification"));
  const TensorSpec& mask = sample[indices.mask];
  if (mask.dtype != DType::kU8 || mask.shape.size() != 2 || classes < 2)
    return Status(StatusCode::kMismatch,
                  "task classification needs `mask` U8 [height, width] of 2 or more classes; the "
                  "data has " +
                      to_string(mask) + " of " + std::to_string(classes) + " classes");
  if (!batch_transforms.empty())
    return Status(StatusCode::kMismatch,
                  "data.train.batch_transforms: mixup and cutmix need one label per sample; the "
                  "data has " +
                      to_string(mask) + "; remove them");
  STOKER_ASSIGN_OR_RETURN(
      ClassWeights weights,
      ClassWeights::of(config.class_weights.values, "task.class_weights", classes, "classes"));
  return std::unique_ptr<Task>(std::make_unique<PixelClassification>(
      config, std::move(indices), mask.elements(), classes, std::move(weights)));
}

}  // namespace stoker::task
