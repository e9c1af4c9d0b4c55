// TensorView: a named tensor in host memory that somebody else owns.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "shared/base/tensor_spec.h"

namespace stoker::checkpoint {

struct TensorView {
  TensorSpec spec;
  std::span<const std::byte> bytes;  // C order, little endian, spec.bytes() long
};

using TensorViews = std::vector<TensorView>;

}  // namespace stoker::checkpoint
