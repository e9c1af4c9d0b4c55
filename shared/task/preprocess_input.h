// From what a data set stores to what a model takes. Training, evaluation and anything that serves
// a model must do the same here, so it is done once, by the settings of data.train.
//
// Threads: pure functions; the result may share the input's memory.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/config/dataset_config.h"

namespace stoker::task {

// What is taken from a picture's values, from 0 to 1, and by what they are then divided: one number
// for all channels, or one for each.
struct Normalization {
  std::vector<double> mean = {0.0};
  std::vector<double> std = {1.0};
};

// Null: none. kMismatch where the settings are not for pictures like `input`; says both sides.
Result<Normalization> find_normalization(const config::Normalize* maybe_normalize,
                                         const TensorSpec& input);

// U8 (pictures, 0 to 255, [batch, channels, …]) -> F32: (x / 255 - mean) / std, which by default is
// in [0, 1]. F32 unchanged.
at::Tensor preprocess_input(const at::Tensor& input, const Normalization& normalization = {});

// U8, U16, I32 -> I64. I64 unchanged.
at::Tensor preprocess_tokens(const at::Tensor& tokens);

}  // namespace stoker::task
