#include "daemon/train/histograms.h"

#include <utility>

#include <ATen/ops/cat.h>

#include "daemon/train/tensor_statistics.h"

namespace stoker::train {

void Histograms::on_gradients() {
  if (!is_active_) return;
  seen_.clear();
  for (const auto& item : model_.named_parameters()) {
    const at::Tensor& gradient = item.value().grad();
    if (gradient.defined())
      seen_.push_back({"gradients/" + item.key(), enqueue_statistics(gradient, true)});
  }
}

void Histograms::end_step(uint64_t step) {
  if (!std::exchange(is_active_, false)) return;
  for (const auto& item : model_.named_parameters())
    seen_.push_back({"parameters/" + item.key(), enqueue_statistics(item.value(), true)});
  std::vector<at::Tensor> parts;
  for (const Seen& one : seen_) parts.push_back(one.statistics);
  const at::Tensor host = at::cat(parts).cpu();  // one copy for all tensors
  std::vector<metrics::NamedSummary> summaries;
  int64_t at = 0;
  for (const Seen& one : std::exchange(seen_, {})) {
    const int64_t count = one.statistics.numel();
    summaries.push_back({one.tag, read_statistics(host.narrow(0, at, count))});
    at += count;
  }
  sink_.report_histograms(step, std::move(summaries));
}

}  // namespace stoker::train
