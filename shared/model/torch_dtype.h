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

at::ScalarType scalar_type_of(DType dtype);

// nullopt: stoker has no name for it, and no checkpoint holds it.
std::optional<DType> maybe_dtype_of(at::ScalarType type);

// Asserts that there is one: no model, optimizer or task of ours makes tensors of another type.
DType dtype_of(at::ScalarType type);

TensorSpec spec_of(const std::string& name, const at::Tensor& tensor);

}  // namespace stoker::model
