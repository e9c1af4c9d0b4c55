// trunc_normal_: torch.nn.init.trunc_normal_, which LibTorch's C++ API does not have.
//
// Threads: uses the default CPU generator.
#pragma once

#include <ATen/core/Tensor.h>

namespace stoker::model {

// Fills `tensor` from N(mean, deviation²) truncated at `low` and `high`, with the same random
// numbers as torch.nn.init.trunc_normal_(tensor, mean, deviation, low, high) for the same seed. The
// relative difference of a float32 value from PyTorch's is at most 2.5e-7 without a mean. For a
// deviation of at most 0.35 and the default bounds the result is bit-for-bit independent of
// processor and number of threads, which PyTorch's is not.
void trunc_normal_(const at::Tensor& tensor, double deviation, double mean = 0, double low = -2,
                   double high = 2);

}  // namespace stoker::model
