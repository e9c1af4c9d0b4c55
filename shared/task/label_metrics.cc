#include "shared/task/label_metrics.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>

#include "shared/task/host_values.h"
#include "shared/task/label_loss.h"

namespace stoker::task {

void LabelMetrics::add(const at::Tensor& logits, const at::Tensor& labels) {
  if (!metrics_) start(static_cast<uint64_t>(logits.size(1)));
  const HostValues<float> losses(label_losses(logits, labels, maybe_gamma_));
  const HostValues<int64_t> label_values(labels);
  const HostValues<int64_t> predictions(logits.argmax(1));
  const at::Tensor probabilities = at::softmax(logits, 1);
  const HostValues<float> confidences(probabilities.amax(1));
  const HostValues<uint8_t> in_top_k(is_in_top_k(logits, labels));
  const HostValues<float> curve_values(has_pr_curves_ ? probabilities : at::empty({0}));
  metrics_->add({losses.span(), label_values.span(), predictions.span(), confidences.span(),
                 in_top_k.span(), curve_values.span()});
}

eval_metrics::EvalReport LabelMetrics::report() const {
  if (metrics_) return metrics_->report();
  return eval_metrics::ClassificationMetrics({.classes = classes_}).report();
}

void LabelMetrics::start(uint64_t outputs) {
  const bool has_top_k = options_.top_k > 1 && static_cast<uint64_t>(options_.top_k) < outputs;
  top_k_ = has_top_k ? options_.top_k : 0;
  // A model with fewer outputs than classes has no probability of some.
  has_pr_curves_ =
      options_.has_pr_curves && outputs >= classes_ && outputs <= eval_metrics::kMaxPrCurves;
  metrics_.emplace(
      eval_metrics::ClassificationMetrics::Options{.classes = std::max(classes_, outputs),
                                                   .top_k = top_k_,
                                                   .misclassified = options_.misclassified,
                                                   .weights = weights_});
}

at::Tensor LabelMetrics::is_in_top_k(const at::Tensor& logits, const at::Tensor& labels) const {
  if (top_k_ == 0) return at::empty({0}, at::kByte);
  const at::Tensor top_k_classes = std::get<1>(at::topk(logits, top_k_, 1));
  return top_k_classes.eq(labels.unsqueeze(1)).any(1).to(at::kByte);
}

}  // namespace stoker::task
