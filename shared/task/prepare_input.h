// From what a data set stores to what a model takes. Training, evaluation and anything that serves
// a model must do the same here, so it is done once.
//
// Threads: pure functions; the result may share the input's memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace stoker::task {

// U8 (pictures, 0 to 255) -> F32 in [-1, 1]: (x / 255 - 0.5) / 0.5. F32 unchanged.
at::Tensor prepare_input(const at::Tensor& input);

// U8, U16, I32 -> I64. I64 unchanged.
at::Tensor prepare_tokens(const at::Tensor& tokens);

}  // namespace stoker::task
