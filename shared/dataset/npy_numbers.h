// npy numbers: numbers of any type of numpy's as those of a tensor.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shared/base/tensor_spec.h"
#include "shared/dataset/npy_header.h"

namespace stoker::dataset {

// Each rounded to the nearest F32 (a float64 that is too large becomes infinite); NaN stays NaN.
// `from` has as many numbers as `to`.
void npy_to_floats(const NpyType& type, std::span<const std::byte> from, std::span<std::byte> to);
// Of whole numbers: the first one as a class. Negative ones, and those over the largest int64, are -1.
int64_t npy_to_class(const NpyType& type, std::span<const std::byte> from);
// The same with negative ones as they are.
int64_t npy_to_label(const NpyType& type, std::span<const std::byte> from);

}  // namespace stoker::dataset
