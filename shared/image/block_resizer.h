// BlockResizer: resizes a picture while its rows come in, in vectors: the fast one, for kernels of
// at most FixedPointKernel::kMaxTaps weights.
//
// Each output row is first summed up over the input rows, at the input's width. Sixteen of them
// make a block, which is turned so that the sixteen values of a column lie side by side, summed up
// along the width in that form, and turned back. Values in between keep eight bits below a level,
// so that the result is within one level of Pillow's, which rounds twice.
//
// Threads: one object per thread; memory is kept for the next picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/image/fixed_point_kernel.h"
#include "shared/image/image_types.h"
#include "shared/image/pixel_rows.h"
#include "shared/image/resample_kernel.h"

namespace stoker::image {

class BlockResizer {
 public:
  // Rows will be `row_bytes` long and begin with column `left` of the kernel's input. `planes`:
  // shape.bytes() bytes, which must stay valid until the last row was pushed.
  void begin(const ResampleKernel& across, const ResampleKernel& down, const ImageShape& shape,
             std::span<std::byte> planes, size_t row_bytes, uint32_t left);
  // Where the next row is to be written, before push().
  uint8_t* next_row() { return rows_.row(next_row_); }
  // That row, the next from down.first() on, is there. Allocates nothing.
  void push();

 private:
  // What is looked at of a row.
  const uint8_t* used(uint32_t number) const { return rows_.row(number) + unused_bytes_; }
  void sum_up_rows();
  void finish_block();
  uint8_t* plane_row(uint32_t channel, uint32_t y) const;

  ImageShape shape_;
  std::span<std::byte> planes_;
  FixedPointKernel across_, down_;
  std::vector<uint32_t> down_counts_;  // weights of each output row
  bool only_split_ = false;            // same size: nothing to sum up
  size_t unused_bytes_ = 0;            // at the beginning of a row
  size_t row_values_ = 0;              // after them, that are looked at
  size_t block_stride_ = 0;            // values from one row of the block to the next
  uint32_t next_row_ = 0;              // of the input, from the kernel's first on
  uint32_t summed_ = 0;                // output rows that are in a block
  PixelRows rows_;
  std::vector<uint16_t> block_, turned_, sums_;
  std::vector<uint8_t> narrow_;
};

}  // namespace stoker::image
