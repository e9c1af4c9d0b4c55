// npy tensor: which tensor an array of numpy's becomes: pictures of bytes, or numbers.
//
// Arrays of uint8 with two dimensions are grey pictures, with three they are pictures: [height,
// width, 1 or 3] is turned around, all others are taken as they are. Everything else becomes F32 of
// its shape.
//
// Threads: values; pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/dataset/npy_header.h"

namespace stoker::dataset {

struct NpyTensorForm {
  bool is_image = false;        // U8 [channels, height, width]; else F32 of the array's shape
  bool is_interleaved = false;  // the array is [height, width, channels]
  std::vector<int64_t> shape;   // of the tensor; at least one dimension
};

NpyTensorForm npy_tensor_form(const NpyType& type, std::span<const uint64_t> shape);

// Pixels of `channels` bytes each as planes.
void deinterleave(std::span<const std::byte> pixels, size_t channels, std::span<std::byte> planes);

}  // namespace stoker::dataset
