// RowSink: where a reader puts the rows it decodes, and checks that the readers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/image/image_types.h"
#include "shared/image/resizer.h"

namespace stoker::image {

// References into one Decoder and its caller.
struct RowSink {
  const ImageShape& shape;
  std::span<std::byte> planes;
  const CropFunction& region;
  Resizer& resizer;
  std::vector<uint8_t>& pixels;  // scratch

  // The part that is wanted of a picture of this size.
  CropBox box(uint32_t height, uint32_t width) const;
};

// kCorrupt when a picture of this size is refused.
Status check_size(uint64_t height, uint64_t width, const DecodeLimits& limits);

// RGB pixels of a part of a picture, whose place in it is (top, left).
struct DecodedRegion {
  const uint8_t* pixels;
  size_t row_bytes;
  uint32_t top;
  uint32_t left;
  uint32_t width;
};
// Pushes those rows of it that the resizer needs.
void push_rows(const DecodedRegion& region, const RowSink& target);

// In place: `row` holds `width` pixels and keeps the shorter result at its front.
void cmyk_to_rgb(uint8_t* row, uint32_t width);  // Adobe's: 255 is no ink
void rgb_to_gray(uint8_t* row, uint32_t width);

}  // namespace stoker::image
