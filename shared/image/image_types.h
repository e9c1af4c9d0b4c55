// ImageShape, Box, Limits, Format: the words of the decoders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace stoker::image {

// What a picture is turned into: planes of `height` rows of `width` bytes, red green blue or one of
// grey.
struct ImageShape {
  uint32_t channels = 3;  // 3 or 1
  uint32_t height = 0;
  uint32_t width = 0;

  size_t bytes() const { return size_t{channels} * height * width; }
};

// A part of a picture, in its pixels, which need not be whole ones. Inside the picture, and not
// empty.
struct CropBox {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
};

// Which part of a picture of this size is wanted; empty: all of it.
using CropFunction = std::function<CropBox(uint32_t height, uint32_t width)>;

// What is refused, before anything is allocated for it.
struct DecodeLimits {
  uint64_t pixels = 100'000'000;
  uint32_t side = 65'535;  // pixels; more would be a way to make tables large
  int scans = 100;         // of a progressive JPEG: each costs a pass over the whole picture
  uint64_t memory_bytes = uint64_t{1} << 30;  // that the decoder may take for one picture
};

enum class Format { kUnknown, kJpeg, kPng, kWebp };

// By the first bytes, whatever the file's name says.
Format detect_format(std::span<const std::byte> file);
inline constexpr size_t kFormatBytes = 12;  // that detect_format() looks at

}  // namespace stoker::image
