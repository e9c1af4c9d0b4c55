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

at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [ours, torchs] : kTypes)
    if (ours == dtype) return torchs;
  assert(false && "a DType that is not in the table");
  return at::ScalarType::Undefined;
}

std::optional<DType> maybe_dtype_of(at::ScalarType type) {
  for (const auto& [ours, torchs] : kTypes)
    if (torchs == type) return ours;
  return std::nullopt;
}

DType dtype_of(at::ScalarType type) {
  const auto dtype = maybe_dtype_of(type);
  assert(dtype && "a scalar type that stoker has no name for");
  return dtype.value_or(DType::kU8);
}

TensorSpec spec_of(const std::string& name, const at::Tensor& tensor) {
  return {name, dtype_of(tensor.scalar_type()), tensor.sizes().vec()};
}

}  // namespace stoker::model
