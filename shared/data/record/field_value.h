// FieldValue: the value of one named field of a record, and its conversion to tensor elements.
//
// Every format whose records have named fields (features of a tf.train.Example, members of a tar
// sample, …) returns its values in this form; sample_spec.h defines which of them form a sample.
//
// Threads: values; pure functions.
// Errors:  kCorrupt, with the actual and the required value; the caller adds field and record. The
//          outputs are then unspecified.
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

// Element type of an array: 'b' bool, 'i' and 'u' integers, 'f' floats; `bytes` per element.
struct NumberType {
  char kind = 'f';
  uint64_t bytes = 4;
  bool operator==(const NumberType&) const = default;
  bool is_integer() const { return kind != 'f'; }
};

// The elements of an array as stored in its file: little-endian and unaligned. They are converted
// when they are written to a tensor.
struct FieldArray {
  std::span<const std::byte> bytes;
  NumberType type;
  uint64_t interleaved_channels = 0;  // if it is an image of [height, width, channels]; else 0

  uint64_t size() const { return bytes.size() / type.bytes; }
  FieldArray first(uint64_t count) const { return {bytes.first(count * type.bytes), type}; }
};

// Refers to memory of the reader. std::monostate: the record has no value of that name.
using FieldValue = std::variant<std::monostate, FieldBytes, FieldInts, FieldFloats, FieldArray>;

// RecordValues: the values of one record, as input and output of RecordReader::read().
struct RecordValues {
  // One for each value of the spec; missing until it is read.
  std::span<FieldValue> fields;
  // Known before reading: the length of a sequence when it was indexed, and the class of a labeled
  // record. If the record contains its label, the reader checks it and sets the class.
  uint64_t length = 0;
  uint64_t label = 0;
  // The tensors of the sample. A reader whose file contains the bytes of a tensor reads them
  // directly into it and lets the value refer to them, which avoids a copy. `target_tensor` is empty
  // if the spec has no label, labels or target.
  std::span<std::byte> input_tensor = {};
  std::span<std::byte> target_tensor = {};
};

inline bool is_missing(const FieldValue& value) { return value.index() == 0; }
inline bool is_bytes(const FieldValue& value) { return std::holds_alternative<FieldBytes>(value); }
// "nothing", "12 bytes", "3 integers", "1 number".
std::string describe(const FieldValue& value);
std::string_view to_string_view(FieldBytes bytes);

// An array that was read directly into its tensor (RecordValues::input_tensor) is not copied again.

// The size of bytes or of a uint8 array; nullopt for other values.
std::optional<size_t> byte_count(const FieldValue& value);
// Copies bytes or a uint8 array of exactly the size of `out`. Interleaved channels become planes.
Status copy_bytes(const FieldValue& value, std::span<std::byte> out);

// Writes the numbers to `out` from index `filled` on and advances `filled`. Bytes contain one
// number as text ("3.5"). Integers and float64 are rounded to F32. NaN and infinity are errors
// because no model can learn from them.
Status append_numbers(const FieldValue& value, std::span<float> out, size_t& filled);
// Whether no element of the array becomes NaN or infinity as F32.
bool is_finite(const FieldArray& array);

// One non-negative integer, numeric or as text ("7\n").
Result<uint64_t> non_negative_integer(const FieldValue& value);

// A class index: one non-negative integer, numeric or as text, also written with a fraction of zero
// ("7.0"), as pandas writes a column of integers that had a missing value.
Result<uint64_t> class_index(const FieldValue& value);

// Whether the text is a number ("-1", "0.5", "1e3"); surrounding spaces are ignored.
bool is_number(std::string_view text);

// One integer of 64 bits, numeric or as text ("-7\n").
Result<int64_t> integer(const FieldValue& value);

// The name of a group: a text, without surrounding spaces, or one integer.
Result<std::string> group_text(const FieldValue& value);

// The number of elements of a list or an array; nullopt for other values.
std::optional<uint64_t> number_count(const FieldValue& value);
// The same for integers; other values are an error.
Result<uint64_t> integer_count(const FieldValue& value);
// The first `count` numbers of `value`, which has at least as many.
FieldValue first_numbers(const FieldValue& value, uint64_t count);
// The integers from index `first` on, at most buffer.size(). Those of a list are not copied; those
// of an array are converted into `buffer`.
FieldInts integers(const FieldValue& value, uint64_t first, std::span<int64_t> buffer);
// Copies the first out.size() integers, which must exist.
void copy_integers(const FieldValue& value, std::span<int64_t> out);

// Converts all elements to F32, rounded to nearest. A float64 that is too large becomes infinite;
// NaN remains NaN. `out` has exactly the required size and can be unaligned.
void array_to_floats(const FieldArray& array, std::span<std::byte> out);
// One element of an integer array; -1 for an unsigned value above the maximum of int64.
int64_t integer_at(const FieldArray& array, uint64_t element);
// The same for a class index: -1 for all negative values.
int64_t class_at(const FieldArray& array, uint64_t element);
// Converts pixels of `channels` bytes each to one plane per channel.
void deinterleave(std::span<const std::byte> pixels, size_t channels, std::span<std::byte> planes);

// Removes leading and trailing spaces, tabs and line ends.
std::string_view trimmed(std::string_view text);

}  // namespace stoker::data::record
