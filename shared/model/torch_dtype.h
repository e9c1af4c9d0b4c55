// Element types and shapes in LibTorch's words and in ours.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "shared/base/tensor_spec.h"

namespace stoker::model {

at::ScalarType to_scalar_type(DType dtype);

// nullopt: stoker has no name for it, and no checkpoint holds it.
std::optional<DType> find_dtype(at::ScalarType type);

// Asserts that there is one: no model, optimizer or task of ours makes tensors of another type.
DType to_dtype(at::ScalarType type);

TensorSpec to_tensor_spec(const std::string& name, const at::Tensor& tensor);

}  // namespace stoker::model
