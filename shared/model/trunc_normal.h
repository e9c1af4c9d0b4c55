// trunc_normal_: torch.nn.init.trunc_normal_, which LibTorch does not have in C++.
//
// Threads: draws from the default CPU generator.
#pragma once

#include <ATen/core/Tensor.h>

namespace stoker::model {

// Fills `tensor` from N(0, deviation²) truncated at -2 and 2, from the draws that
// torch.nn.init.trunc_normal_(tensor, std=deviation) makes with the same seed. A float32 value
// differs from PyTorch's by at most 2.5e-7 of itself. For a deviation of at most 0.35 the bytes depend
// on neither the processor nor the number of threads; those of PyTorch do.
void trunc_normal_(const at::Tensor& tensor, double deviation);

}  // namespace stoker::model
