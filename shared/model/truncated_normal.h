// truncated_normal_: torch.nn.init.trunc_normal_, which LibTorch does not have in C++.
//
// Threads: draws from the default CPU generator.
#pragma once

#include <ATen/core/Tensor.h>

namespace stoker::model {

// Fills `tensor` from N(0, deviation²) cut off at -2 and 2, with the numbers that
// torch.nn.init.trunc_normal_(tensor, std=deviation) draws from the same seed.
void truncated_normal_(const at::Tensor& tensor, double deviation);

}  // namespace stoker::model
