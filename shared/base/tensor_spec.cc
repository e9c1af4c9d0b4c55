#include "shared/base/tensor_spec.h"

#include <array>
#include <utility>

namespace stoker {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  size_t bytes;
};

constexpr std::array<DTypeRow, 11> kDTypes{{{DType::kU8, "U8", 1},
                                            {DType::kU16, "U16", 2},
                                            {DType::kI32, "I32", 4},
                                            {DType::kI64, "I64", 8},
                                            {DType::kF16, "F16", 2},
                                            {DType::kBF16, "BF16", 2},
                                            {DType::kF32, "F32", 4},
                                            {DType::kF64, "F64", 8},
                                            {DType::kBool, "BOOL", 1},
                                            {DType::kI8, "I8", 1},
                                            {DType::kI16, "I16", 2}}};

}  // namespace

size_t dtype_bytes(DType dtype) {
  for (const auto& row : kDTypes)
    if (row.dtype == dtype) return row.bytes;
  return 0;
}

std::string_view to_string(DType dtype) {
  for (const auto& row : kDTypes)
    if (row.dtype == dtype) return row.name;
  return "?";
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (const auto& row : kDTypes)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

int64_t TensorSpec::elements() const {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

std::string to_string(const TensorSpec& spec) {
  std::string text = spec.name + " " + std::string(to_string(spec.dtype)) + " [";
  for (size_t i = 0; i < spec.shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(spec.shape[i]);
  }
  return text + "]";
}

}  // namespace stoker
