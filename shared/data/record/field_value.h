// FieldValue: what a record says under one name, and how that becomes numbers of a tensor.
//
// Every kind whose records have named fields (features of a tf.train.Example, members of a tar
// sample, …) brings its values into this form; sample_spec.h says which of them make a sample.
//
// Threads: values; pure functions.
// Errors:  kCorrupt, saying what was found and what is needed; the caller adds which field of which
//          record. Outputs are then unspecified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "shared/base/status.h"

namespace stoker::data::record {

using FieldBytes = std::span<const std::byte>;
using FieldInts = std::span<const int64_t>;
using FieldFloats = std::span<const float>;

// The type of an array's elements: 'b' bool, 'i' and 'u' integers, 'f' floats, and the bytes of one.
struct NumberType {
  char kind = 'f';
  uint64_t bytes = 4;
  bool operator==(const NumberType&) const = default;
  bool is_integer() const { return kind != 'f'; }
};

// The elements of an array as its file stores them, little-endian and not aligned. They are converted
// when they are written into a tensor.
struct FieldArray {
  std::span<const std::byte> bytes;
  NumberType type;
  uint64_t interleaved_channels = 0;  // of an image stored as [height, width, channels]; else 0

  uint64_t size() const { return bytes.size() / type.bytes; }
  FieldArray first(uint64_t count) const { return {bytes.first(count * type.bytes), type}; }
};

// Points into memory of the reader. std::monostate: the record has no value of that name.
using FieldValue = std::variant<std::monostate, FieldBytes, FieldInts, FieldFloats, FieldArray>;

inline bool is_missing(const FieldValue& value) { return value.index() == 0; }
inline bool is_bytes(const FieldValue& value) { return std::holds_alternative<FieldBytes>(value); }
// "nothing", "12 bytes", "3 whole numbers", "1 number".
std::string describe(const FieldValue& value);
std::string_view to_string_view(FieldBytes bytes);
// A name or value out of a file as messages show it: in quotes, without control characters, and cut
// off where it is long.
std::string quote_for_message(std::string_view text, size_t max_bytes = 32);

// An array that was read into the place that it is copied to stays there (RecordValues::input_tensor).

// The size of bytes, or of an array of uint8; nothing of other values.
std::optional<size_t> byte_count(const FieldValue& value);
// Bytes, or an array of uint8: exactly as many as `out` has. Interleaved channels become planes.
Status copy_bytes(const FieldValue& value, std::span<std::byte> out);

// Appends numbers to those that are already in `out` before `filled`, and moves `filled` on. Bytes
// are one number as people write it ("3.5"). Integers and float64 are rounded to F32. NaN and infinity
// are refused, for no model learns from them, unless an array may hold them.
Status append_numbers(const FieldValue& value, std::span<float> out, size_t& filled,
                      bool must_be_finite = true);

// One whole number that is not negative, as a number or as people write it ("7\n").
Result<uint64_t> whole_number(const FieldValue& value);

// The numbers of a list or an array; nothing of other values.
std::optional<uint64_t> number_count(const FieldValue& value);
// The same of whole numbers: "is 3 numbers, no list of whole numbers".
Result<uint64_t> whole_number_count(const FieldValue& value);
// The first `count` numbers of `value`, which has at least as many.
FieldValue first_numbers(const FieldValue& value, uint64_t count);
// Of whole numbers those from `first` on, at most as many as `buffer` has: of a list as they lie, of an
// array converted into `buffer`.
FieldInts whole_numbers(const FieldValue& value, uint64_t first, std::span<int64_t> buffer);
// The same, copied into `out`.
void copy_whole_numbers(const FieldValue& value, std::span<int64_t> out);

// Array elements, each rounded to the nearest F32; a float64 that is too large becomes infinite, and NaN
// stays NaN. `out` has room for all of them, aligned or not.
void array_to_floats(const FieldArray& array, std::span<std::byte> out);
// One element of an array of integers; an unsigned one over the largest int64 is -1.
int64_t whole_number_at(const FieldArray& array, uint64_t element);
// The same as a class: negative ones are -1.
int64_t class_at(const FieldArray& array, uint64_t element);
// Pixels of `channels` bytes each as planes.
void deinterleave(std::span<const std::byte> pixels, size_t channels, std::span<std::byte> planes);

// Without spaces, tabs and line ends at both ends.
std::string_view trimmed(std::string_view text);

}  // namespace stoker::data::record
