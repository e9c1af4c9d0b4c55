#include "shared/task/sequence_mask.h"

#include <ATen/ops/arange.h>

namespace stoker::task {
namespace {

constexpr int64_t kIgnored = -100;  // PyTorch's ignore_index

}  // namespace

std::optional<size_t> maybe_length(const std::vector<TensorSpec>& sample) {
  for (size_t i = 0; i < sample.size(); ++i)
    if (sample[i].name == "length" && sample[i].shape.empty()) return i;
  return std::nullopt;
}

at::Tensor without_padding(const at::Tensor& next, const at::Tensor& length) {
  const at::Tensor place = at::arange(1, next.size(1) + 1, length.options());
  return next.masked_fill(place.ge(length.unsqueeze(1)), kIgnored);
}

at::Tensor mean_loss(const at::Tensor& losses, const at::Tensor& target) {
  return losses.sum().div(target.ne(kIgnored).sum().clamp_min(1));
}

}  // namespace stoker::task
