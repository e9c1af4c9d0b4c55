// npy tensor: which tensor a numpy array becomes: an image of bytes, or numbers.
//
// Arrays of uint8 with two dimensions are grayscale images, with three they are images: [height,
// width, 1 or 3] is transposed to [channels, height, width], all others are taken as they are.
// Everything else becomes F32 of its shape.
//
// Threads: values; pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/format/npy_header.h"
#include "shared/data/record/field_value.h"

namespace stoker::data::format {

struct NpyTensorForm {
  bool is_image = false;        // U8 [channels, height, width]; else F32 of the array's shape
  bool is_interleaved = false;  // the array is [height, width, channels]
  std::vector<int64_t> shape;   // of the tensor; at least one dimension
};

NpyTensorForm npy_tensor_form(const NpyType& type, std::span<const uint64_t> shape);

// npy value: an array of numpy's that is one value of a record, such as a member of a tar file.
//
// Threads: pure functions. The value points into the array's bytes.
// Errors:  kCorrupt: what npy_header.h says of the array, or that it does not fit.

// What the settings require of an array.
struct NpyWanted {
  bool bytes = false;          // an image of bytes; else numbers, of any type
  std::vector<int64_t> shape;  // the tensor's, or as many numbers in one dimension; empty: any
  uint64_t max_elements = 0;   // numbers
};

// Whether an array that begins with `head` is an image of bytes.
Result<bool> npy_is_bytes(std::span<const std::byte> head, uint64_t array_bytes);

Status read_npy_value(std::span<const std::byte> array, const NpyWanted& wanted,
                      record::FieldValue& value);
// All its numbers, whose number is in the first dimension, or of all: those of a step of a sequence,
// `values_per_step` each.
Status read_npy_steps(std::span<const std::byte> array, uint64_t values_per_step,
                      record::FieldValue& value);
// One whole number: a class.
Status read_npy_label(std::span<const std::byte> array, record::FieldValue& value);

}  // namespace stoker::data::format
