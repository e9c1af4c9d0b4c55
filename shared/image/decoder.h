// Decoder: a JPEG, PNG or WebP file in memory, or a part of the picture, to planes of bytes of a
// given size.
//
// Every picture becomes 8-bit RGB, or grey by the usual luma (ITU-R 601), whatever it was: grey,
// palette, 16-bit, CMYK (by Adobe's convention: stored inverted). Alpha is dropped, not blended.
// EXIF orientation is not applied. The part is stretched to the shape. A JPEG is decoded at the
// smallest of 1/1, 1/2, 1/4, 1/8 at which the part still covers the shape, and nothing is decoded
// that the part does not need.
//
// Threads: one object per thread; memory is kept for the next picture, so that a warm decoder
//          allocates little.
// Errors:  kCorrupt with the library's reason: damaged (where it was looked at), cut off, of
//          another format, or past the limits; kOutOfMemory. The output bytes are then unspecified,
//          and the decoder stays usable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/image/image_types.h"
#include "shared/image/jpeg_reader.h"
#include "shared/image/resizer.h"

namespace stoker::image {

// What decodes here, in words: pictures that another version has made may be other ones.
std::string decoder_versions();

class Decoder {
 public:
  explicit Decoder(const DecodeLimits& limits = {}) : limits_(limits), jpeg_(limits) {}

  // `planes`: shape.bytes() bytes: plane after plane, row after row.
  Status decode(std::span<const std::byte> file, const ImageShape& shape,
                std::span<std::byte> planes, const CropFunction& region = {});

 private:
  // Constant after construction.
  const DecodeLimits limits_;

  JpegReader jpeg_;
  Resizer resizer_;
  std::vector<uint8_t> pixels_;  // what a library decodes into that does not give rows
};

}  // namespace stoker::image
