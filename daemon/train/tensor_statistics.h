// Tensor statistics: the summary of a tensor, computed where the tensor is.
//
// The buckets of the histogram are quarters of an octave, from 2^-40 to 2^16 on both sides of zero;
// what is smaller or larger is in the outermost, and zero has its own. So histograms of different
// steps, and of parts of a tensor, have the same limits.
//
// Threads:  functions of their arguments.
// Blocking: enqueue_statistics() never waits for the device; the copy of its result to the host does.
// Errors:   LibTorch's exceptions pass through.
#pragma once

#include <ATen/core/Tensor.h>

#include "shared/metrics/tensor_summary.h"

namespace stoker::train {

// F64 on the tensor's device, to be read by read_statistics(). Takes the tensor in pieces, so that
// little memory is needed beside it.
at::Tensor enqueue_statistics(const at::Tensor& tensor, bool with_histogram);
// `values`: of enqueue_statistics(), on the CPU.
metrics::TensorSummary read_statistics(const at::Tensor& values);

}  // namespace stoker::train
