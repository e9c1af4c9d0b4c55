// Resizer: resizes a region of an image row by row into planes, and reports the rows and columns
// that it needs, so that no others have to be decoded.
//
// The result is within one level (of 255) of Pillow's resize(BILINEAR, box=…), equal to that of
// NEAREST, and within three levels of BICUBIC.
//
// Usage: begin(); expect_rows(); then for each row of rows(): fill next_row(), push().
//
// Threads:  one object per thread. Memory is reused for the next image; a warm object does not
//           allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/image/image_types.h"
#include "shared/image/resample_kernel.h"

namespace stoker::image {

// PixelRows: ring buffer for the most recently decoded rows.
//
// Rows start 8 bytes after a multiple of 64. libjpeg-turbo's color conversion writes aligned rows
// with non-temporal stores, and reading them back takes longer than decoding a small image.
//
// Threads:  one object per thread; memory is reused for the next image.
class PixelRows {
 public:
  // Allocates `rows` rows of `bytes` bytes with unspecified contents.
  void reserve(uint32_t rows, size_t bytes) {
    rows_ = rows;
    stride_ = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    const size_t needed = rows * stride_ + kCacheLine + kPastAlignment;
    if (memory_.size() < needed) memory_.resize(needed);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    first_ = memory_.data() + (kCacheLine - address % kCacheLine) + kPastAlignment;
  }
  // Row `number` replaces row `number - rows`.
  uint8_t* row(uint32_t number) const { return first_ + size_t{number % rows_} * stride_; }

 private:
  static constexpr size_t kCacheLine = 64;
  static constexpr size_t kPastAlignment = 8;

  uint32_t rows_ = 1;
  size_t stride_ = 0;
  uint8_t* first_ = nullptr;
  std::vector<uint8_t> memory_;
};

// BlockResizer: vectorized resizer for streamed rows. The fast implementation, for kernels of at
// most FixedPointKernel::kMaxTaps weights.
//
// Each output row is first accumulated vertically at the width of the input. Blocks of sixteen such
// rows are transposed, so that the sixteen values of a column are adjacent, resized horizontally in
// that form, and transposed back. Intermediate values keep eight fractional bits, so the result is
// within one level of Pillow's, which rounds twice.
//
// Threads:  one object per thread; memory is reused for the next image.
class BlockResizer {
 public:
  // Rows will be `row_bytes` long and start with column `left` of the kernel's input. `planes`:
  // shape.bytes() bytes, which must stay valid until the last row was pushed.
  void begin(const ResampleKernel& across, const ResampleKernel& down, const ImageShape& shape,
             std::span<std::byte> planes, size_t row_bytes, uint32_t left);
  // Buffer for the next row, to be filled before push().
  uint8_t* next_row() { return rows_.row(next_row_); }
  // Processes the row in next_row(); the first one is down.first(). Does not allocate.
  void push();

 private:
  // The part of a row that is used.
  const uint8_t* used_row(uint32_t number) const { return rows_.row(number) + unused_bytes_; }
  void sum_up_rows();
  void finish_block();
  uint8_t* plane_row(uint32_t channel, uint32_t y) const;

  ImageShape shape_;
  std::span<std::byte> planes_;
  FixedPointKernel across_, down_;
  std::vector<uint32_t> down_counts_;  // number of weights of each output row
  bool only_split_ = false;            // same size: channels are only separated
  size_t unused_bytes_ = 0;            // at the start of a row
  size_t row_values_ = 0;              // number of used values after unused_bytes_
  size_t block_stride_ = 0;            // distance between rows of the block, in values
  uint32_t next_row_ = 0;              // input row, relative to the first row of the kernel
  uint32_t summed_ = 0;                // number of accumulated output rows
  PixelRows rows_;
  std::vector<uint16_t> block_, transposed_, sums_;
  std::vector<uint8_t> resized_columns_;
};

// RowResizer: resizer for streamed rows and kernels of any width. The exact implementation, for
// images that are reduced a lot; it stores only unfinished output rows.
//
// Each row is first resized horizontally, to bytes, and then added with its weight to the output
// rows that it contributes to. The result is bit-identical to Pillow's.
//
// Threads:  one object per thread; memory is reused for the next image.
class RowResizer {
 public:
  // Like BlockResizer::begin(). The kernels must stay valid until the last row was pushed.
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
  uint32_t left_ = 0;                     // first column of the pushed rows
  size_t row_values_ = 0;                 // per output row: width * channels
  uint32_t ring_ = 0;                     // maximum number of unfinished output rows
  uint32_t next_row_ = 0;                 // input row
  uint32_t started_ = 0;                  // output rows with initialized sums
  uint32_t finished_ = 0;                 // output rows that have been written
  PixelRows row_;                         // as decoded
  std::vector<uint8_t> resized_columns_;  // resized horizontally
  std::vector<int32_t> sums_;             // ring_ rows
};

class Resizer {
 public:
  struct Range {
    uint32_t begin = 0;
    uint32_t end = 0;
  };

  // The region `box` of an image of this height and width. `planes`: shape.bytes() bytes, which
  // must stay valid until the last row was pushed.
  void begin(uint32_t height, uint32_t width, const CropBox& box, const ImageShape& shape,
             std::span<std::byte> planes, Interpolation interpolation);
  Range rows() const { return {.begin = down_.first(), .end = down_.end()}; }
  Range columns() const { return {.begin = across_.first(), .end = across_.end()}; }

  // Rows will be `row_bytes` long and start with column `left`, which must not exceed
  // columns().begin.
  void expect_rows(size_t row_bytes, uint32_t left);
  // Buffer for the next row: interleaved, shape.channels bytes per pixel.
  uint8_t* next_row() { return in_blocks_ ? blocks_.next_row() : exact_.next_row(); }
  void push() { in_blocks_ ? blocks_.push() : exact_.push(); }

 private:
  ImageShape shape_;
  std::span<std::byte> planes_;
  Interpolation interpolation_ = Interpolation::kBilinear;
  ResampleKernel across_, down_;
  bool in_blocks_ = true;
  BlockResizer blocks_;
  RowResizer exact_;
};

}  // namespace stoker::image
