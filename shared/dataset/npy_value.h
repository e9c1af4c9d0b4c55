// NpyValue: an array of numpy's that is one value of a record, such as a member of a tar file.
//
// Threads: each object is one thread's. The value that it gives points into its memory, and into
//          the array's, until the next call.
// Errors:  kCorrupt: what npy_header.h says of the array, or that it does not fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/dataset/field_value.h"
#include "shared/dataset/npy_header.h"
#include "shared/dataset/npy_tensor.h"

namespace stoker::dataset {

// What the settings want of an array, beside its being one.
struct NpyWanted {
  bool bytes = false;          // a picture of bytes; else numbers, of whatever type they are
  std::vector<int64_t> shape;  // the tensor's, or as many numbers in one dimension; empty: any
  uint64_t max_elements = 0;   // numbers
};

// Whether an array that begins so is a picture of bytes (npy_tensor.h).
Result<bool> npy_is_bytes(std::span<const std::byte> head, uint64_t array_bytes);

class NpyValue {
 public:
  Status read(std::span<const std::byte> array, const NpyWanted& wanted, FieldValue& value);
  // All its numbers, whole ones as such, whose number is in the first dimension, or of all: those of
  // a place of a sequence, `values_per_step` each.
  Status read_steps(std::span<const std::byte> array, uint64_t values_per_step, FieldValue& value);
  // One whole number: a class.
  Status read_label(std::span<const std::byte> array, FieldValue& value);

 private:
  std::vector<std::byte> planes_;
  std::vector<float> numbers_;
  std::vector<int64_t> whole_;
  int64_t label_ = 0;
};

}  // namespace stoker::dataset
