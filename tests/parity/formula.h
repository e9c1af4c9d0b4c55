// Formula: numbers that stoker and its PyTorch counterpart both compute, so that they need not be
// stored in a file: weights, images, and the stored values of a tensor. formula.py has the same.
//
// All are derived from noise(): a hash of an index, as a number in [-1, 1). It uses integers and
// one exact division, so every processor computes the same bits.
//
// Errors: exceptions of LibTorch are propagated.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "shared/model/model.h"

namespace stoker::parity {

// F64 [count], for the indices from `first` on.
at::Tensor noise(uint64_t first, int64_t count);

// Sets every parameter from its name. Tensors with two or more dimensions get a variance that
// preserves the magnitude of activations through a layer and a ReLU; biases are near 0 and norm
// weights near 1. None is exactly 0 or 1, unlike many initial values, so each parameter affects the
// outputs.
void set_weights(model::Model& model);
// The same for these tensors, of which one dimension or more are required.
void set_tensors(const model::NamedTensors& tensors);

// F64 [2]: the norm, and the dot product with noise, which depends on the position of each element.
at::Tensor stored_values(const at::Tensor& tensor);

}  // namespace stoker::parity
