// Sequence mask: which places of a padded sequence count.
//
// Threads: pure functions. Nothing in them waits for a device or depends on what is in a tensor, so a
//          CUDA graph can hold them.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/base/tensor_spec.h"

namespace stoker::task {

// Where the samples say how long they are: `length` I64 []. Nothing: all have one length.
std::optional<size_t> maybe_length(const std::vector<TensorSpec>& sample);

// `next`: the tokens that follow those a model was given, [batch, time]. Those behind the end of
// their sequence, whose tokens are `length` [batch] with the first, become -100, which cross entropy
// does not count.
at::Tensor without_padding(const at::Tensor& next, const at::Tensor& length);

// The mean of `losses`, which are 0 where `target` is -100, over the others; 0 where there is none.
at::Tensor mean_loss(const at::Tensor& losses, const at::Tensor& target);

}  // namespace stoker::task
