// recompute(): a part of a model whose inner results are not kept for the backward pass, but computed
// a second time in it; as torch.utils.checkpoint. Memory for time: only the part's input is kept.
//
// The second time is the first over again: the same random numbers, the same format under autocast.
// So the gradients are those of the plain part, bit for bit.
//
// Threads: as torch::nn::Module; the backward pass may be another thread's.
// Errors:  LibTorch's exceptions pass through.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace stoker::model {

using Function = std::function<at::Tensor(const at::Tensor&)>;

// part(input). `parameters` are all that the part reads; whatever else it reads gets no gradient. The
// part must live until the backward pass is over. `draws`: it takes random numbers. Where no gradient
// is asked for it is simply called.
at::Tensor checkpoint_activations(Function function, const at::Tensor& input,
                                  std::vector<at::Tensor> parameters, bool uses_random);

}  // namespace stoker::model
