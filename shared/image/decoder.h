// Decoder: decodes a JPEG, PNG or WebP file in memory, or a region of it, and resizes it to planar
// 8-bit pixels.
//
// Every image is converted to 8-bit RGB, or to gray with the ITU-R 601 luma, from any source: gray,
// palette, 16-bit, CMYK (Adobe convention: stored inverted). Alpha is dropped, not blended. The
// EXIF orientation is applied if the caller passes it. The region is stretched to the output shape. A JPEG is decoded at the
// smallest of the scales 1/1, 1/2, 1/4, 1/8 at which the region still covers the shape, and as
// little as possible outside the region is decoded.
//
// Threads:  one object per thread. Memory is reused for the next image, so a warm decoder allocates
//           little.
// Errors:   kCorrupt with the reason given by the library: corrupt (in the part that was decoded),
//           truncated, of another format, or over the limits; kOutOfMemory. The output bytes are
//           then unspecified, and the decoder remains usable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/image/exif_orientation.h"
#include "shared/image/image_types.h"
#include "shared/image/jpeg_reader.h"
#include "shared/image/resizer.h"

namespace stoker::image {

// Versions of the decoding libraries and of this code; another version can produce different
// pixels.
std::string decoder_versions();

struct DecodeOptions {
  Interpolation interpolation = Interpolation::kBilinear;
  Orientation orientation = {};  // of the file; `shape` and `region` are those of the upright image
  // A PNG whose palette indices or gray levels are classes; `shape` has one channel, and the
  // interpolation is kNearest.
  bool is_mask = false;
};

class Decoder {
 public:
  explicit Decoder(const DecodeLimits& limits = {}) : limits_(limits), jpeg_(limits) {}

  const DecodeLimits& limits() const { return limits_; }

  // `planes`: shape.bytes() bytes, plane by plane, row by row.
  Status decode(std::span<const std::byte> file, const ImageShape& shape,
                std::span<std::byte> planes, const CropFunction& region = {},
                const DecodeOptions& options = {});

 private:
  Status decode_stored(std::span<const std::byte> file, const ImageShape& shape,
                       std::span<std::byte> planes, const CropFunction& region,
                       const DecodeOptions& options);

  // Constant after construction.
  const DecodeLimits limits_;

  JpegReader jpeg_;
  Resizer resizer_;
  std::vector<uint8_t> pixels_;    // scratch for libraries that do not decode row by row
  std::vector<std::byte> stored_;  // planes of an image that is not upright
};

}  // namespace stoker::image
