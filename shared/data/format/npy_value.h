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

// Pixels of `channels` bytes each as planes.
void deinterleave(std::span<const std::byte> pixels, size_t channels, std::span<std::byte> planes);

// npy numbers: numbers of any type of numpy's as those of a tensor.
//
// Threads: pure functions.

// Each rounded to the nearest F32 (a float64 that is too large becomes infinite); NaN stays NaN.
// `from` has as many numbers as `to`.
void npy_to_floats(const NpyType& type, std::span<const std::byte> from, std::span<std::byte> to);
// Of whole numbers: the first one as a class. Negative ones, and those over the largest int64, are -1.
int64_t npy_to_class(const NpyType& type, std::span<const std::byte> from);
// The same with negative ones as they are.
int64_t npy_to_label(const NpyType& type, std::span<const std::byte> from);

// NpyValue: an array of numpy's that is one value of a record, such as a member of a tar file.
//
// Threads: each object is one thread's. The value that it gives points into its memory, and into
//          the array's, until the next call.
// Errors:  kCorrupt: what npy_header.h says of the array, or that it does not fit.

// What the settings want of an array, beside its being one.
struct NpyWanted {
  bool bytes = false;          // a picture of bytes; else numbers, of whatever type they are
  std::vector<int64_t> shape;  // the tensor's, or as many numbers in one dimension; empty: any
  uint64_t max_elements = 0;   // numbers
};

// Whether an array that begins so is a picture of bytes.
Result<bool> npy_is_bytes(std::span<const std::byte> head, uint64_t array_bytes);

class NpyValue {
 public:
  Status read(std::span<const std::byte> array, const NpyWanted& wanted, record::FieldValue& value);
  // All its numbers, whole ones as such, whose number is in the first dimension, or of all: those of
  // a place of a sequence, `values_per_step` each.
  Status read_steps(std::span<const std::byte> array, uint64_t values_per_step,
                    record::FieldValue& value);
  // One whole number: a class.
  Status read_label(std::span<const std::byte> array, record::FieldValue& value);

 private:
  std::vector<std::byte> planes_;
  std::vector<float> numbers_;
  std::vector<int64_t> whole_;
  int64_t label_ = 0;
};

}  // namespace stoker::data::format
