// npy tensor: the tensor that a NumPy array is converted to, a uint8 image or float32 values.
//
// A uint8 array with two dimensions is a grayscale image, with three dimensions an image. [height,
// width, 1 or 3] is transposed to [channels, height, width] unless its first dimension is 1 or 3;
// other shapes are used unchanged. All other arrays become F32 of the same shape.
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
  std::vector<int64_t> shape;   // of the tensor; one or more dimensions
};

NpyTensorForm npy_tensor_form(const NpyType& type, std::span<const uint64_t> shape);

// npy value: a NumPy array that is one value of a record, such as a member of a tar file.
//
// Threads: pure functions. The value refers to the bytes of the array.
// Errors:  kCorrupt: those of npy_header.h, or an array that does not match the configuration.

// Requirements of the configuration on an array.
struct NpyWanted {
  bool bytes = false;          // a uint8 image; else numbers of any type
  std::vector<int64_t> shape;  // of the tensor, or its flattened size; empty: any
  uint64_t max_elements = 0;   // of the tensor
};

// Whether an array whose bytes start with `head` is a uint8 image.
Result<bool> npy_is_bytes(std::span<const std::byte> head, uint64_t array_bytes);

Status read_npy_value(std::span<const std::byte> array, const NpyWanted& wanted,
                      record::FieldValue& value);
// All elements of a sequence. With more than one dimension, each row must have `values_per_step`
// elements; a one-dimensional array is the flattened sequence.
Status read_npy_steps(std::span<const std::byte> array, uint64_t values_per_step,
                      record::FieldValue& value);
// A single integer: a class index.
Status read_npy_label(std::span<const std::byte> array, record::FieldValue& value);

}  // namespace stoker::data::format
