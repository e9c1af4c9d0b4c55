#include "shared/image/row_sink.h"

#include <cassert>
#include <cstring>
#include <string>

namespace stoker::image {
namespace {

// round(a * b / 255) without a division.
uint8_t scaled(uint32_t a, uint32_t b) {
  const uint32_t product = a * b + 128;
  return static_cast<uint8_t>((product + (product >> 8)) >> 8);
}

}  // namespace

CropBox RowSink::box(uint32_t height, uint32_t width) const {
  if (!region) return {.left = 0, .top = 0, .width = double(width), .height = double(height)};
  const CropBox box = region(height, width);
  assert(box.left >= 0 && box.top >= 0 && box.width > 0 && box.height > 0);
  assert(box.left + box.width <= width + 1e-6 && box.top + box.height <= height + 1e-6);
  return box;
}

Status check_size(uint64_t height, uint64_t width, const DecodeLimits& limits) {
  const std::string size = std::to_string(width) + "x" + std::to_string(height) + " pixels";
  if (height == 0 || width == 0) return Status(StatusCode::kCorrupt, "invalid size " + size);
  if (height > limits.side || width > limits.side || height * width > limits.pixels) {
    return Status(StatusCode::kCorrupt, size + ": more than the limit of " +
                                            std::to_string(limits.pixels) +
                                            " pixels (max_image_pixels), or of " +
                                            std::to_string(limits.side) + " per side");
  }
  return {};
}

void push_rows(const DecodedRegion& region, const RowSink& target) {
  target.resizer.expect_rows(region.row_bytes, region.left);
  const auto [begin, end] = target.resizer.rows();
  for (uint32_t y = begin; y < end; ++y) {
    uint8_t* row = target.resizer.next_row();
    std::memcpy(row, region.pixels + (y - region.top) * region.row_bytes, region.row_bytes);
    if (target.shape.channels == 1) rgb_to_gray(row, region.width);
    target.resizer.push();
  }
}

void cmyk_to_rgb(uint8_t* row, uint32_t width) {
  const uint8_t* from = row;
  for (uint32_t x = 0; x < width; ++x, from += 4) {
    const uint8_t black = from[3];
    for (int c = 0; c < 3; ++c) *row++ = scaled(from[c], black);
  }
}

void rgb_to_gray(uint8_t* row, uint32_t width) {
  const uint8_t* from = row;
  // 0.299, 0.587 and 0.114 in units of 1/65536; the sum is 1, so gray is unchanged.
  for (uint32_t x = 0; x < width; ++x, from += 3)
    *row++ = static_cast<uint8_t>(
        (from[0] * 19595u + from[1] * 38470u + from[2] * 7471u + 32768u) >> 16);
}

}  // namespace stoker::image
