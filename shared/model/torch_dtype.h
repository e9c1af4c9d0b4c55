// Conversions of dtypes and shapes between LibTorch and stoker.
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

// nullopt: stoker has no equivalent, so a checkpoint cannot hold it.
std::optional<DType> find_dtype(at::ScalarType type);

// Asserts that there is an equivalent: built-in models, optimizers and tasks create no tensors of
// other dtypes.
DType to_dtype(at::ScalarType type);

TensorSpec to_tensor_spec(const std::string& name, const at::Tensor& tensor);

}  // namespace stoker::model
