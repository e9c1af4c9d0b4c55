// checkpoint_activations(): runs a part of a model without storing its intermediate activations and
// recomputes them during the backward pass, as torch.utils.checkpoint does. Trades time for memory:
// only the input of the part is stored.
//
// The recomputation uses the same random numbers and the same autocast dtype, so the gradients are
// bit-for-bit those of an ordinary forward pass.
//
// Threads: as torch::nn::Module; the backward pass can run on another thread.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace stoker::model {

using Function = std::function<at::Tensor(const at::Tensor&)>;
using FunctionOfSeveral = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// Returns function(input). `parameters` must list every parameter that the function reads, and every
// other tensor with a gradient; all others get no gradient. Objects that the function refers to must
// outlive the backward pass.
// `uses_random`: the function consumes random numbers. If gradients are disabled, the function is
// called directly.
at::Tensor checkpoint_activations(Function function, const at::Tensor& input,
                                  std::vector<at::Tensor> parameters, bool uses_random);
// function(inputs): one or more tensors, which may depend on each other. Others that the function reads get no gradient.
at::Tensor checkpoint_activations(FunctionOfSeveral function, const std::vector<at::Tensor>& inputs,
                                  bool uses_random);

}  // namespace stoker::model
