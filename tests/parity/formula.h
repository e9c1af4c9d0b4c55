// Formula: numbers that stoker and its PyTorch counterpart both compute, so that no file need hold them: a model's
// weights, pictures, and what is kept of a tensor. formula.py has the same.
//
// All come from noise(): a hash of a place, as a number from -1 to below 1. Integers, and one division
// that is exact: every processor has the same bits.
//
// Errors: LibTorch's exceptions pass through.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "shared/model/model.h"

namespace stoker::parity {

// F64 [count], of the places from `first` on.
at::Tensor noise(uint64_t first, int64_t count);

// Every parameter, by its name: what has two dimensions and more of a variance that lets numbers pass a
// layer and a ReLU as large as they were, a bias near 0, a norm's weight near 1. None is 0 or 1, as many
// are when a model begins, so that each has its part in what the model says.
void set_weights(model::Model& model);

// F64 [2]: the norm, and the sum of the elements times noise, in which each one's place counts.
at::Tensor stored_values(const at::Tensor& tensor);

}  // namespace stoker::parity
