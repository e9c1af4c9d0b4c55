// The cross entropy of a model whose last layer is linear, without its logits: they exist in BF16 for
// some rows at a time, and the gradient replaces them in the same memory. Forward and backward pass of
// both operations are computed together.
//
// Threads: pure functions.
// Errors:  exceptions of LibTorch are propagated. The loss is NaN if a label is not a class.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace stoker::model {

// Whether there is a kernel for the device in the current autocast dtype: BF16 only.
bool has_linear_cross_entropy(c10::Device device);

// The mean cross entropy in nats of the logits `features` [rows, width] * `weight`^T [width, classes]
// over the `labels` I64 [rows] that are not `ignored_label`; 0 if there are none. F32 scalar with
// gradients of features and weight. Requires has_linear_cross_entropy(). `max_chunk_bytes` bounds the memory
// of the logits.
at::Tensor linear_cross_entropy(const at::Tensor& features, const at::Tensor& weight,
                                const at::Tensor& labels, int64_t ignored_label,
                                int64_t max_chunk_bytes = int64_t{512} << 20);

}  // namespace stoker::model
