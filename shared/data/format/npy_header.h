// npy header: the header that NumPy writes before the elements of an array.
//
// Threads: values; pure functions.
// Errors:  kCorrupt with the reason and, if there is one, a suggested fix; the caller adds the
//          file. The size that a header declares is checked against the file size before memory is
//          allocated.
// Format:  versions 1 to 3: "\x93NUMPY", two bytes version, u16 (version 1) or u32 (2, 3) length,
//          then a Python dict literal with exactly the keys 'descr', 'fortran_order' and 'shape'.
//          The parser accepts only such a literal; nothing is evaluated.
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
std::string_view to_string(const NpyType& type);  // "float32"; empty: not supported

struct NpyHeader {
  NpyType type;
  std::vector<uint64_t> shape;  // one or more dimensions, each >= 1; a value can have none
  uint64_t data_offset = 0;     // of the first element, in the bytes of the array

  uint64_t rows() const { return shape[0]; }
  uint64_t row_elements() const;
  uint64_t row_bytes() const { return row_elements() * type.bytes; }
};

constexpr size_t kNpyPrefix = 12;  // sufficient for npy_header_bytes()
constexpr size_t kMaxNpyDimensions = 32;
constexpr uint64_t kMaxNpyHeader = 64 << 10;  // NumPy's own limit is 10,000

// Size of the header with its prefix. `start`: the first kNpyPrefix bytes, or all if there are
// fewer.
Result<uint64_t> npy_header_bytes(std::span<const std::byte> start);
// `head`: the first npy_header_bytes() bytes. `array_bytes`: size of the whole array, which must
// equal the size that the header declares.
Result<NpyHeader> parse_npy_header(std::span<const std::byte> head, uint64_t array_bytes);
// As parse_npy_header(), for an array that is a single value instead of rows. It can have no
// dimensions.
Result<NpyHeader> parse_npy_value_header(std::span<const std::byte> head, uint64_t array_bytes);

}  // namespace stoker::data::format
