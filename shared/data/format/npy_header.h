// npy header: what numpy writes before the numbers of an array.
//
// Threads: values; pure functions.
// Errors:  kCorrupt, saying what is wrong and, where there is one, the remedy; the caller adds
//          which file. Nothing is allocated for what a header promises before the file's length
//          bears it out.
// Format:  versions 1 to 3: "\x93NUMPY", two bytes version, u16 (1) or u32 (2, 3) length, then a
//          Python dict literal with 'descr', 'fortran_order' and 'shape', and nothing else. It is
//          read by a parser for just that; nothing is evaluated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/record/field_value.h"

namespace stoker::data::format {

using NpyType = record::NumberType;
std::string_view to_string(const NpyType& type);  // "float32"; empty: it is not one we read

struct NpyHeader {
  NpyType type;
  std::vector<uint64_t> shape;  // at least one dimension, each at least 1; of a value also none
  uint64_t data_offset = 0;     // of the first number, in the array's bytes

  uint64_t rows() const { return shape[0]; }
  uint64_t row_elements() const;
  uint64_t row_bytes() const { return row_elements() * type.bytes; }
};

constexpr size_t kNpyPrefix = 12;  // enough to know npy_header_bytes()
constexpr size_t kMaxNpyDimensions = 32;
constexpr uint64_t kMaxNpyHeader = 64 << 10;  // numpy's own limit is 10,000

// How long the header is, with its prefix. `start`: the first kNpyPrefix bytes, or all there are.
Result<uint64_t> npy_header_bytes(std::span<const std::byte> start);
// `head`: npy_header_bytes() of an array of `array_bytes` in all, which must be just what it
// promises.
Result<NpyHeader> parse_npy_header(std::span<const std::byte> head, uint64_t array_bytes);
// The same of an array that has no rows but is one value, and so may be a single number.
Result<NpyHeader> parse_npy_value_header(std::span<const std::byte> head, uint64_t array_bytes);

}  // namespace stoker::data::format
