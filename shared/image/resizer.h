// Resizer: a part of a picture, row by row, to planes of another size; says which rows and columns
// it needs, so that no others have to be decoded.
//
// Pillow's resize(BILINEAR, box=…) to within one level of 255.
//
// Use:     begin(); expect_rows(); then for each row of rows(): fill next_row(), push().
// Threads: one object per thread; memory is kept for the next picture: a warm one allocates
//          nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shared/image/block_resizer.h"
#include "shared/image/image_types.h"
#include "shared/image/resample_kernel.h"
#include "shared/image/row_resizer.h"

namespace stoker::image {

class Resizer {
 public:
  struct Range {
    uint32_t begin = 0;
    uint32_t end = 0;
  };

  // The part `box` of a picture of this height and width. `planes`: shape.bytes() bytes, which must
  // stay valid until the last row was pushed.
  void begin(uint32_t height, uint32_t width, const CropBox& box, const ImageShape& shape,
             std::span<std::byte> planes);
  Range rows() const { return {.begin = down_.first(), .end = down_.end()}; }
  Range columns() const { return {.begin = across_.first(), .end = across_.end()}; }

  // Rows will be written `row_bytes` long, and begin with column `left`, at or before
  // columns().begin.
  void expect_rows(size_t row_bytes, uint32_t left);
  // Where the next row's pixels go: interleaved, shape.channels bytes each.
  uint8_t* next_row() { return in_blocks_ ? blocks_.next_row() : exact_.next_row(); }
  void push() { in_blocks_ ? blocks_.push() : exact_.push(); }

 private:
  ImageShape shape_;
  std::span<std::byte> planes_;
  ResampleKernel across_, down_;
  bool in_blocks_ = true;
  BlockResizer blocks_;
  RowResizer exact_;
};

}  // namespace stoker::image
