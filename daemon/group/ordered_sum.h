// sum_ordered: the sum of tensors of all ranks in the tree of ProcessGroup::all_reduce_ordered().
//
// Threads: a function of its arguments. LibTorch's exceptions pass through.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace stoker::group {

// Sums the first half of the parts plus the second half, recursively, and overwrites the parts. Returns
// the first one, which is the sum.
const at::Tensor& sum_ordered(const std::vector<at::Tensor>& parts);

// Elements ends[of_rank - 1] … ends[of_rank] of a flat tensor.
at::Tensor part_of_rank(const at::Tensor& flat, const std::vector<int64_t>& ends, int of_rank);

}  // namespace stoker::group
