// Decoder: a JPEG or PNG file in memory to planes of bytes of a given size.
//
// Every picture becomes 8-bit RGB, or grey by the usual luma (ITU-R 601), whatever it was: grey,
// palette, 16-bit, CMYK (by Adobe's convention: stored inverted). Alpha is dropped, not blended.
// EXIF orientation is not applied. The picture is stretched to the shape. A JPEG is decoded at the
// smallest of 1/1, 1/2, 1/4, 1/8 that still covers the shape.
//
// Threads: one object per thread; memory is kept for the next picture, so that a warm decoder
//          allocates little.
// Errors:  kCorrupt with the library's reason: damaged, cut off, of another format, or past the
//          limits; kOutOfMemory. The output bytes are then unspecified, and the decoder stays
//          usable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/image/picture.h"
#include "shared/image/row_resizer.h"

namespace stoker::image {

class Decoder {
 public:
  explicit Decoder(const Limits& limits = {}) : limits_(limits) {}

  // `planes`: shape.bytes() bytes: plane after plane, row after row.
  Status decode(std::span<const std::byte> file, const PictureShape& shape,
                std::span<std::byte> planes);

 private:
  // Constant after construction.
  const Limits limits_;

  RowResizer resizer_;
  std::vector<uint8_t> pixels_;  // what a library decodes into
};

}  // namespace stoker::image
