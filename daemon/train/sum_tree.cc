#include "daemon/train/sum_tree.h"

#include <cassert>
#include <cstddef>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/empty_like.h>

namespace stoker::train {

void SumTree::add(const std::vector<at::Tensor>& values, int level, bool is_last) {
  if (values.empty()) return;
  const at::NoGradGuard no_grad;
  const auto own = static_cast<size_t>(level);
  assert(own <= levels_.size());
  for (size_t k = 0; k < own; ++k) at::_foreach_add_(values, levels_[k]);
  if (is_last) {
    // The remaining sums of a count that is no power of two.
    for (size_t k = own + 1; k < levels_.size(); ++k)
      if ((count_ >> k & 1) != 0) at::_foreach_add_(values, levels_[k]);
    return;
  }
  if (own == levels_.size()) {
    levels_.emplace_back();
    for (const at::Tensor& value : values) levels_.back().push_back(at::empty_like(value));
  }
  at::_foreach_copy_(levels_[own], values);
  at::_foreach_zero_(values);
}

uint64_t SumTree::bytes() const {
  uint64_t bytes = 0;
  for (const auto& level : levels_)
    for (const at::Tensor& tensor : level) bytes += tensor.nbytes();
  return bytes;
}

}  // namespace stoker::train
