// PixelRows: memory for the last rows that a library has decoded, which are read again at once.
//
// Rows begin 8 bytes past a multiple of 64: where a row is aligned, libjpeg-turbo's conversion of
// colours writes it past the caches, and reading it back takes longer than decoding a small picture
// does.
//
// Threads: one object per thread; memory is kept for the next picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stoker::image {

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

}  // namespace stoker::image
