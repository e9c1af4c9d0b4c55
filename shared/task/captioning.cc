// captioning: the words that describe an image.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>

#include "shared/data/record/word_vocabulary.h"
#include "shared/eval_metrics/caption_metrics.h"
#include "shared/model/caption_model.h"
#include "shared/task/caption_search.h"
#include "shared/task/host_values.h"
#include "shared/task/label_loss.h"
#include "shared/task/preprocess_input.h"
#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

using data::record::kCaptionEnd;
using data::record::kCaptionStart;

struct CaptionedImages {
  size_t images = 0, labels = 0, references = 0;  // indices in a batch
  Normalization normalization = {};
};

// All captions of all images; padding is ignored.
struct CaptionLogits {
  at::Tensor logits;  // F32 [captions * tokens, vocab]
  at::Tensor labels;  // I64 [captions * tokens]
};

model::CaptionModel& as_caption_model(model::Model& model) {
  auto* const captioner = dynamic_cast<model::CaptionModel*>(&model);
  TORCH_CHECK(captioner != nullptr, "task captioning requires model captioner");
  return *captioner;
}

// Each row `times` times in a row; unlike repeat_interleave(), certainly without waiting for the
// device.
at::Tensor repeat_rows(const at::Tensor& rows, int64_t times) {
  std::vector<int64_t> shape = rows.sizes().vec();
  shape.insert(shape.begin() + 1, times);
  return rows.unsqueeze(1).expand(shape).flatten(0, 1);
}

at::Tensor encode_images(model::CaptionModel& captioner, const Batch& batch,
                         const CaptionedImages& indices) {
  return captioner.encode(preprocess_input(batch.at(indices.images), indices.normalization));
}

// `labels`: [batch, captions, tokens].
CaptionLogits predict_words(model::CaptionModel& captioner, const at::Tensor& encoded,
                            const at::Tensor& labels) {
  const at::Tensor rows = labels.flatten(0, 1);
  const at::Tensor start = at::full({rows.size(0), 1}, kCaptionStart, rows.options());
  const at::Tensor words = rows.narrow(1, 0, rows.size(1) - 1);
  const at::Tensor inputs =
      at::cat({start, words.masked_fill(words.eq(kIgnoredLabel), kCaptionEnd)}, 1);
  return {
      captioner.decode(repeat_rows(encoded, labels.size(1)), inputs).flatten(0, 1).to(at::kFloat),
      rows.flatten()};
}

class CaptioningEvaluation : public Evaluation {
 public:
  CaptioningEvaluation(CaptionedImages indices, EvaluationOptions options)
      : indices_(std::move(indices)), options_(std::move(options)) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    model::CaptionModel& captioner = as_caption_model(model);
    const at::Tensor encoded = encode_images(captioner, batch, indices_);
    const at::Tensor& labels = batch.at(indices_.labels);
    add_loss(captioner, encoded, labels);
    const std::vector<std::vector<int64_t>> captions =
        search_captions(captioner, encoded,
                        {.num_beams = options_.num_beams,
                         .max_length = labels.size(2),
                         .start = kCaptionStart,
                         .end = kCaptionEnd});
    const HostValues<uint8_t> references(batch.at(indices_.references));
    const size_t bytes = references.span().size() / captions.size();
    for (size_t i = 0; i < captions.size(); ++i)
      add_caption(data::record::decode_caption(captions[i], options_.class_names),
                  lines_of(references.span().subspan(i * bytes, bytes)));
  }

  eval_metrics::EvalReport report() const override {
    eval_metrics::EvalReport report;
    report.metrics.emplace_back("loss", loss_ / static_cast<double>(tokens_));
    for (auto& metric : metrics_.metrics()) report.metrics.push_back(std::move(metric));
    report.captions = captions_;
    return report;
  }

 private:
  void add_loss(model::CaptionModel& captioner, const at::Tensor& encoded,
                const at::Tensor& labels) {
    const auto [logits, rows] = predict_words(captioner, encoded, labels);
    const auto [valid_logits, valid_labels] = drop_ignored_labels(logits, rows);
    const HostValues<float> losses(
        at::cross_entropy_loss(valid_logits, valid_labels, {}, at::Reduction::None));
    for (const float loss : losses.span()) loss_ += static_cast<double>(loss);
    tokens_ += losses.span().size();
  }

  static std::vector<std::string> lines_of(std::span<const uint8_t> text) {
    std::vector<std::string> lines(1);
    for (const uint8_t byte : text) {
      if (byte == 0) break;
      if (byte == '\n')
        lines.emplace_back();
      else
        lines.back() += static_cast<char>(byte);
    }
    return lines;
  }

  void add_caption(std::string caption, std::vector<std::string> references) {
    const bool is_exact = metrics_.add(caption, references);
    if (captions_.size() < options_.captions)
      captions_.push_back({.sample = metrics_.size() - 1,
                           .caption = std::move(caption),
                           .references = std::move(references),
                           .is_exact = is_exact});
  }

  const CaptionedImages indices_;
  const EvaluationOptions options_;
  eval_metrics::CaptionMetrics metrics_;
  std::vector<eval_metrics::CaptionedSample> captions_;
  double loss_ = 0;
  uint64_t tokens_ = 0;
};

class Captioning : public Task {
 public:
  Captioning(const config::CaptioningTask& config, CaptionedImages indices, int64_t max_tokens)
      : indices_(std::move(indices)), max_tokens_(max_tokens), loss_({}, config.label_smoothing) {}

  std::vector<std::string> training_metrics(const model::Model& /*model*/) const override {
    return {"accuracy"};
  }
  int64_t counts_per_sample(const model::Model& /*model*/) const override { return max_tokens_; }
  LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const override {
    model::CaptionModel& captioner = as_caption_model(model);
    const auto [logits, labels] = predict_words(
        captioner, encode_images(captioner, batch, indices_), batch.at(indices_.labels));
    return with_accuracy_over_valid(loss_.mean_over_valid(logits, labels), logits, labels);
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions& options) const override {
    return std::make_unique<CaptioningEvaluation>(indices_, options);
  }

 private:
  const CaptionedImages indices_;
  const int64_t max_tokens_;  // of all captions of an image
  const LabelLoss loss_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_captioning(const config::CaptioningTask& config,
                                              const config::Normalize* maybe_normalize,
                                              const Samples& sample) {
  CaptionedImages indices;
  STOKER_ASSIGN_OR_RETURN(indices.images,
                          component_index(sample, TensorRole::kInput, "captioning"));
  STOKER_ASSIGN_OR_RETURN(indices.labels,
                          component_index(sample, TensorRole::kLabels, "captioning"));
  STOKER_ASSIGN_OR_RETURN(indices.references,
                          component_index(sample, TensorRole::kReferences, "captioning"));
  const TensorSpec& labels = sample[indices.labels];
  const TensorSpec& references = sample[indices.references];
  if (labels.dtype != DType::kI64 || labels.shape.size() != 2 || labels.elements() < 1 ||
      references.dtype != DType::kU8 || references.shape.size() != 1)
    return Status(StatusCode::kMismatch,
                  "task captioning needs `labels` I64 [captions, tokens] and `references` U8 "
                  "[bytes]; the data has " +
                      to_string(labels) + ", " + to_string(references));
  STOKER_ASSIGN_OR_RETURN(indices.normalization,
                          find_normalization(maybe_normalize, sample[indices.images]));
  return std::unique_ptr<Task>(std::make_unique<Captioning>(
      config, std::move(indices), static_cast<int64_t>(labels.elements())));
}

}  // namespace stoker::task
