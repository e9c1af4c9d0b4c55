// tensor_numbers: the elements of a tensor's bytes, whatever their type, as doubles.
//
// Threads: functions of their arguments.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "shared/base/tensor_spec.h"

namespace stoker::ctl {

// `bytes`: little-endian, as safetensors has them, a whole number of elements. 64-bit integers past
// 2^53 are rounded.
std::vector<double> to_doubles(DType dtype, std::span<const std::byte> bytes);

}  // namespace stoker::ctl
