// image_types: basic types of the decoders and operators (ImageShape, CropBox, DecodeLimits,
// Interpolation, Format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace stoker::image {

// Shape of the output: planes of `height` rows of `width` bytes, either red, green and blue or one
// gray plane.
struct ImageShape {
  uint32_t channels = 3;  // 3 or 1
  uint32_t height = 0;
  uint32_t width = 0;

  size_t bytes() const { return size_t{channels} * height * width; }
};

// A region of an image in pixels, with fractional coordinates. Not empty, and inside the image.
struct CropBox {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
};

// Returns the region to decode of an image of this size; an empty function selects the complete
// image.
using CropFunction = std::function<CropBox(uint32_t height, uint32_t width)>;

// Limits that are checked before memory is allocated.
struct DecodeLimits {
  uint64_t pixels = 100'000'000;
  uint32_t side = 65'535;  // pixels; bounds the size of the resampling tables
  int scans = 100;         // of a progressive JPEG; each scan costs a pass over the complete image
  uint64_t memory_bytes = uint64_t{1} << 30;  // memory of the decoder per image
  bool operator==(const DecodeLimits&) const = default;
};

// Between pixels. kBicubic: only of a resized image.
enum class Interpolation : uint8_t { kNearest, kBilinear, kBicubic };

enum class Format { kUnknown, kJpeg, kPng, kWebp };

// Detects the format from the first bytes; the file name is ignored.
Format detect_format(std::span<const std::byte> file);
inline constexpr size_t kFormatBytes = 12;  // bytes read by detect_format()

}  // namespace stoker::image
