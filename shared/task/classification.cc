// classification: one label a sample.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/topk.h>

#include "shared/model/data_fit.h"
#include "shared/task/kinds.h"
#include "shared/task/prepare_input.h"

namespace stoker::task {
namespace {

struct Places {
  size_t input = 0;
  size_t label = 0;
};

at::Tensor logits_of(model::Model& model, const Batch& batch, const Places& places) {
  return model.forward(prepare_input(batch.at(places.input))).to(at::kFloat);
}

class ClassificationEvaluation : public Evaluation {
 public:
  ClassificationEvaluation(Places places, bool top5) : places_(places), top5_(top5) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const at::Tensor logits = logits_of(model, batch, places_);
    const at::Tensor& label = batch.at(places_.label);
    const at::Tensor losses = at::cross_entropy_loss(logits, label, {}, at::Reduction::None);
    loss_ += losses.sum(at::kDouble).item<double>();
    right_ += logits.argmax(1).eq(label).sum().item<int64_t>();
    if (top5_) {
      const at::Tensor best = std::get<1>(at::topk(logits, 5, 1));
      right5_ += best.eq(label.unsqueeze(1)).sum().item<int64_t>();
    }
    count_ += label.numel();
  }

  MetricValues result() const override {
    const auto count = static_cast<double>(count_);
    MetricValues values = {{"loss", loss_ / count},
                           {"accuracy", static_cast<double>(right_) / count}};
    if (top5_) values.emplace_back("top5", static_cast<double>(right5_) / count);
    return values;
  }

 private:
  const Places places_;
  const bool top5_;
  double loss_ = 0;
  int64_t right_ = 0;
  int64_t right5_ = 0;
  int64_t count_ = 0;
};

class Classification : public Task {
 public:
  Classification(Places places, bool top5) : places_(places), top5_(top5) {}

  at::Tensor loss(model::Model& model, const Batch& batch) const override {
    return at::cross_entropy_loss(logits_of(model, batch, places_), batch.at(places_.label));
  }
  std::unique_ptr<Evaluation> start_evaluation() const override {
    return std::make_unique<ClassificationEvaluation>(places_, top5_);
  }

 private:
  const Places places_;
  const bool top5_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_classification(const Samples& sample, uint64_t classes) {
  Places places;
  STOKER_ASSIGN_OR_RETURN(places.input, component(sample, "input", "classification"));
  STOKER_ASSIGN_OR_RETURN(places.label, component(sample, "label", "classification"));
  const TensorSpec& label = sample[places.label];
  if (label.dtype != DType::kI64 || !label.shape.empty() || classes < 2) {
    return Status(Code::kMismatch,
                  "task classification needs `label` I64 [] of 2 or more classes; the data has " +
                      to_string(label) + " of " + std::to_string(classes) + " classes");
  }
  return std::unique_ptr<Task>(std::make_unique<Classification>(places, classes > 5));
}

}  // namespace stoker::task
