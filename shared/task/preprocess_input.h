// Converts stored samples to the input of a model. Training, evaluation and inference must do this
// identically, so it is implemented once, with the transforms of data.train.
//
// Threads: pure functions; the result can share the memory of the input.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/config/dataset_config.h"

namespace stoker::task {

// Maps image values x in [0, 1] to (x - mean) / std, with one number for all channels or one per
// channel.
struct Normalization {
  std::vector<double> mean = {0.0};
  std::vector<double> std = {1.0};
};

// Null: no normalization. kMismatch: the transform does not fit images like `input`; names both
// sides.
Result<Normalization> find_normalization(const config::Normalize* maybe_normalize,
                                         const TensorSpec& input);

// U8 images (0 to 255, [batch, channels, …]) -> F32: (x / 255 - mean) / std, by default in [0, 1].
// F32 is unchanged.
at::Tensor preprocess_input(const at::Tensor& input, const Normalization& normalization = {});

// U8, U16, I32 -> I64. I64 is unchanged.
at::Tensor preprocess_tokens(const at::Tensor& tokens);

}  // namespace stoker::task
