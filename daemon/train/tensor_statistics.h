// Tensor statistics: computes the summary of a tensor on the tensor's device.
//
// The histogram has four buckets per octave from 2^-40 to 2^16 on both sides of zero, and one
// bucket for zero. Values outside of this range are counted in the outermost buckets. The bucket
// limits are fixed, so histograms of different steps, and of parts of a tensor, can be compared and
// added.
//
// Threads:  pure functions.
// Blocking: enqueue_statistics() never waits for the device; copying its result to the host does.
// Errors:   LibTorch's exceptions pass through.
#pragma once

#include <ATen/core/Tensor.h>

#include "shared/metrics/tensor_summary.h"

namespace stoker::train {

// Returns F64 values on the tensor's device for read_statistics(). Processes the tensor in pieces,
// to limit the additional memory.
at::Tensor enqueue_statistics(const at::Tensor& tensor, bool with_histogram);
// `values`: the result of enqueue_statistics(), copied to the CPU.
metrics::TensorSummary read_statistics(const at::Tensor& values);

}  // namespace stoker::train
