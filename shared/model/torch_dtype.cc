#include "shared/model/torch_dtype.h"

#include <array>
#include <cassert>
#include <utility>

namespace stoker::model {
namespace {

constexpr std::array<std::pair<DType, at::ScalarType>, 11> kTypes = {{
    {DType::kU8, at::kByte},
    {DType::kU16, at::kUInt16},
    {DType::kI32, at::kInt},
    {DType::kI64, at::kLong},
    {DType::kF16, at::kHalf},
    {DType::kBF16, at::kBFloat16},
    {DType::kF32, at::kFloat},
    {DType::kF64, at::kDouble},
    {DType::kBool, at::kBool},
    {DType::kI8, at::kChar},
    {DType::kI16, at::kShort},
}};

}  // namespace

at::ScalarType to_scalar_type(DType dtype) {
  for (const auto& [stoker_type, torch_type] : kTypes)
    if (stoker_type == dtype) return torch_type;
  assert(false && "unknown DType");
  return at::ScalarType::Undefined;
}

std::optional<DType> find_dtype(at::ScalarType type) {
  for (const auto& [stoker_type, torch_type] : kTypes)
    if (torch_type == type) return stoker_type;
  return std::nullopt;
}

DType to_dtype(at::ScalarType type) {
  const auto dtype = find_dtype(type);
  assert(dtype && "scalar type without a DType");
  return dtype.value_or(DType::kU8);
}

TensorSpec to_tensor_spec(const std::string& name, const at::Tensor& tensor) {
  return {name, to_dtype(tensor.scalar_type()), tensor.sizes().vec()};
}

}  // namespace stoker::model
