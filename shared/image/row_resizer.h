// RowResizer: resizes a picture while its rows come in, with kernels of any width and with no more
// memory than the output rows in work need: the exact one, for pictures that shrink a lot.
//
// Each row is first resized along its width, to bytes, then added, weighted, to those output rows
// that it is a part of: to the bit what Pillow computes.
//
// Threads: one object per thread; memory is kept for the next picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/image/image_types.h"
#include "shared/image/pixel_rows.h"
#include "shared/image/resample_kernel.h"

namespace stoker::image {

class RowResizer {
 public:
  // As BlockResizer's. The kernels must stay valid until the last row was pushed.
  void begin(const ResampleKernel& across, const ResampleKernel& down, const ImageShape& shape,
             std::span<std::byte> planes, size_t row_bytes, uint32_t left);
  uint8_t* next_row() { return row_.row(0); }
  void push();

 private:
  void add_to_output_rows();
  void write_output_row(uint32_t y);
  int32_t* sums_of(uint32_t y) { return sums_.data() + size_t{y % ring_} * row_values_; }

  ImageShape shape_;
  std::span<std::byte> planes_;
  const ResampleKernel* across_ = nullptr;
  const ResampleKernel* down_ = nullptr;
  uint32_t left_ = 0;            // the column that rows begin with
  size_t row_values_ = 0;        // of one output row: width * channels
  uint32_t ring_ = 0;            // output rows that may be unfinished at the same time
  uint32_t next_row_ = 0;        // of the input
  uint32_t started_ = 0;         // output rows whose sums have begun
  uint32_t finished_ = 0;        // output rows that are written
  PixelRows row_;                // as it came
  std::vector<uint8_t> narrow_;  // resized along its width
  std::vector<int32_t> sums_;    // ring_ rows
};

}  // namespace stoker::image
