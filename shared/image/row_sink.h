// RowSink: destination of the rows that a file reader decodes, and checks shared by the file
// readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/image/image_types.h"
#include "shared/image/resizer.h"

namespace stoker::image {

// References to members of a Decoder and to its caller's arguments.
struct RowSink {
  const ImageShape& shape;
  std::span<std::byte> planes;
  const CropFunction& region;
  Resizer& resizer;
  std::vector<uint8_t>& pixels;  // scratch
  Interpolation interpolation;

  // The requested region of an image of this size.
  CropBox box(uint32_t height, uint32_t width) const;
};

// kCorrupt if the size exceeds the limits.
Status check_size(uint64_t height, uint64_t width, const DecodeLimits& limits);

// RGB pixels of a region of an image; its offset in the image is (top, left).
struct DecodedRegion {
  const uint8_t* pixels;
  size_t row_bytes;
  uint32_t top;
  uint32_t left;
  uint32_t width;
};
// Pushes the rows that the resizer needs.
void push_rows(const DecodedRegion& region, const RowSink& target);

// In place: `row` contains `width` pixels; the shorter result is written to its start.
void cmyk_to_rgb(uint8_t* row, uint32_t width);  // Adobe convention: 255 is no ink
void rgb_to_gray(uint8_t* row, uint32_t width);

}  // namespace stoker::image
