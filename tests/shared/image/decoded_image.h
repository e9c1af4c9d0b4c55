// DecodedImage: what a Decoder makes of a file, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shared/image/decoder.h"
#include "tests/shared/image/image_files.h"

namespace stoker::image::testing {

struct DecodedImage {
  Status status;
  ImageShape shape;
  std::vector<std::byte> planes;
  int at(uint32_t c, uint32_t y, uint32_t x) const {
    return std::to_integer<int>(planes[(size_t{c} * shape.height + y) * shape.width + x]);
  }
};

inline DecodedImage decode(Decoder& decoder, const std::string& file, const ImageShape& shape,
                           const CropFunction& region = {}) {
  DecodedImage decoded{
      .status = {}, .shape = shape, .planes = std::vector<std::byte>(shape.bytes())};
  decoded.status = decoder.decode(bytes_of(file), shape, decoded.planes, region);
  return decoded;
}
inline DecodedImage decode(const std::string& file, const ImageShape& shape,
                           const CropFunction& region = {}, const DecodeLimits& limits = {}) {
  Decoder decoder(limits);
  return decode(decoder, file, shape, region);
}

}  // namespace stoker::image::testing
