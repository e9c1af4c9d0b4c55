// FieldValue: what a record says under one name, and how that becomes numbers of a tensor.
//
// Every kind whose records have named fields (features of a tf.train.Example, members of a tar
// sample, …) brings its values into this form; record_fields.h says which of them make a sample.
//
// Threads: values; pure functions.
// Errors:  kCorrupt, saying what was found and what is needed; the caller adds which field of which
//          record. Outputs are then unspecified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "shared/base/status.h"

namespace stoker::data::record {

using FieldBytes = std::span<const std::byte>;
using FieldInts = std::span<const int64_t>;
using FieldFloats = std::span<const float>;

// Points into memory of whoever read the record. The first: there is nothing under that name.
using FieldValue = std::variant<std::monostate, FieldBytes, FieldInts, FieldFloats>;

inline bool is_missing(const FieldValue& value) { return value.index() == 0; }
inline bool is_bytes(const FieldValue& value) { return std::holds_alternative<FieldBytes>(value); }
// "nothing", "12 bytes", "3 whole numbers", "1 number".
std::string describe(const FieldValue& value);
std::string_view to_string_view(FieldBytes bytes);
// A name or value out of a file as messages show it: in quotes, without control characters, and cut
// off where it is long.
std::string quote_for_message(std::string_view text, size_t max_bytes = 32);

// Bytes as they are: exactly as many as `out` has.
Status copy_bytes(const FieldValue& value, std::span<std::byte> out);

// Appends numbers to those that are already in `out` before `filled`, and moves `filled` on. Bytes
// are one number as people write it ("3.5"). Whole numbers are rounded to F32; NaN and infinity are
// refused, for no model learns from them.
Status append_numbers(const FieldValue& value, std::span<float> out, size_t& filled);

// One whole number that is not negative, as a number or as people write it ("7\n").
Result<uint64_t> whole_number(const FieldValue& value);

// Without spaces, tabs and line ends at both ends.
std::string_view trimmed(std::string_view text);

}  // namespace stoker::data::record
