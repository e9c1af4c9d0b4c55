// RowResizer: resizes a picture while its rows come in, so that no whole picture of the original
// size is ever held.
//
// Each row is first resized along its width, to bytes, then added, weighted, to those output rows
// that it is a part of.
//
// Threads: one object per thread; memory is kept for the next picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/image/axis_kernel.h"
#include "shared/image/picture.h"

namespace stoker::image {

class RowResizer {
 public:
  // `planes`: shape.bytes() bytes, which must stay valid until the last row was pushed.
  void begin(uint32_t height, uint32_t width, const PictureShape& shape,
             std::span<std::byte> planes);
  // The next row from the top: `width` pixels of `shape.channels` interleaved bytes. Allocates
  // nothing.
  void push(const uint8_t* row);

 private:
  void add_to_output_rows();
  void write_output_row(uint32_t y);
  int32_t* sums_of(uint32_t y) { return sums_.data() + size_t{y % ring_} * row_values_; }

  PictureShape shape_;
  std::span<std::byte> planes_;
  AxisKernel across_, down_;
  size_t row_values_ = 0;        // of one output row: width * channels
  uint32_t ring_ = 0;            // output rows that may be unfinished at the same time
  uint32_t next_row_ = 0;        // of the input
  uint32_t started_ = 0;         // output rows whose sums have begun
  uint32_t finished_ = 0;        // output rows that are written
  std::vector<uint8_t> narrow_;  // the row, resized along its width
  std::vector<int32_t> sums_;    // ring_ rows
};

}  // namespace stoker::image
