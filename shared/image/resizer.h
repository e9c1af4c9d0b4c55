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
#include <vector>

#include "shared/image/image_types.h"
#include "shared/image/resample_kernel.h"

namespace stoker::image {

// Memory for the last rows that a library has decoded, which are read again at once.
//
// Rows begin 8 bytes past a multiple of 64: where a row is aligned, libjpeg-turbo's conversion of
// colours writes it past the caches, and reading it back takes longer than decoding a small picture
// does.
//
// Threads: one object per thread; memory is kept for the next picture.
class PixelRows {
 public:
  // Room for `rows` rows of `bytes` bytes; what they hold is unspecified.
  void reserve(uint32_t rows, size_t bytes) {
    rows_ = rows;
    stride_ = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    const size_t needed = rows * stride_ + kCacheLine + kPastAlignment;
    if (memory_.size() < needed) memory_.resize(needed);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    first_ = memory_.data() + (kCacheLine - address % kCacheLine) + kPastAlignment;
  }
  // Row `number` takes the place of the one `rows` before it.
  uint8_t* row(uint32_t number) const { return first_ + size_t{number % rows_} * stride_; }

 private:
  static constexpr size_t kCacheLine = 64;
  static constexpr size_t kPastAlignment = 8;

  uint32_t rows_ = 1;
  size_t stride_ = 0;
  uint8_t* first_ = nullptr;
  std::vector<uint8_t> memory_;
};

// BlockResizer: resizes a picture while its rows come in, in vectors: the fast one, for kernels of
// at most FixedPointKernel::kMaxTaps weights.
//
// Each output row is first summed up over the input rows, at the input's width. Sixteen of them
// make a block, which is turned so that the sixteen values of a column lie side by side, summed up
// along the width in that form, and turned back. Values in between keep eight bits below a level,
// so that the result is within one level of Pillow's, which rounds twice.
//
// Threads: one object per thread; memory is kept for the next picture.
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

// RowResizer: resizes a picture while its rows come in, with kernels of any width and with no more
// memory than the output rows in work need: the exact one, for pictures that shrink a lot.
//
// Each row is first resized along its width, to bytes, then added, weighted, to those output rows
// that it is a part of: to the bit what Pillow computes.
//
// Threads: one object per thread; memory is kept for the next picture.
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
