// RowTarget: where a reader puts the rows it decodes, and checks that both readers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/image/picture.h"
#include "shared/image/row_resizer.h"

namespace stoker::image {

// References into one Decoder.
struct RowTarget {
  const PictureShape& shape;
  std::span<std::byte> planes;
  RowResizer& resizer;
  std::vector<uint8_t>& pixels;  // scratch
};

// kCorrupt when a picture of this size is refused.
Status check_size(uint64_t height, uint64_t width, const Limits& limits);

// In place: `row` holds `width` pixels and keeps the shorter result at its front.
void cmyk_to_rgb(uint8_t* row, uint32_t width);  // Adobe's: 255 is no ink
void rgb_to_grey(uint8_t* row, uint32_t width);

}  // namespace stoker::image
