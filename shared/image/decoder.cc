#include "shared/image/decoder.h"

#include <array>
#include <cassert>
#include <cstring>
#include <string>
#include <utility>

#include "shared/image/png.h"
#include "shared/image/webp_reader.h"

namespace stoker::image {
namespace {

constexpr std::array<uint8_t, 3> kJpegMagic{0xff, 0xd8, 0xff};
constexpr std::array<uint8_t, 8> kPngMagic{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

// A RIFF file: magic, length, content type.
constexpr std::array<uint8_t, 4> kRiffMagic{'R', 'I', 'F', 'F'}, kWebpMagic{'W', 'E', 'B', 'P'};
constexpr size_t kRiffBytes = 8;

template <size_t kSize>
bool starts_with_magic(std::span<const std::byte> file, const std::array<uint8_t, kSize>& magic) {
  return file.size() >= kSize && std::memcmp(file.data(), magic.data(), kSize) == 0;
}

// Version of the processing after the libraries; increment it when the output changes.
constexpr int kOwnVersion = 1;

}  // namespace

std::string decoder_versions() {
  return "images " + std::to_string(kOwnVersion) + "; " + jpeg_version() + "; " + png_version() +
         "; " + webp_version();
}

Format detect_format(std::span<const std::byte> file) {
  if (starts_with_magic(file, kJpegMagic)) return Format::kJpeg;
  if (starts_with_magic(file, kPngMagic)) return Format::kPng;
  if (starts_with_magic(file, kRiffMagic) && file.size() >= kFormatBytes &&
      starts_with_magic(file.subspan(kRiffBytes), kWebpMagic))
    return Format::kWebp;
  return Format::kUnknown;
}

Status Decoder::decode(std::span<const std::byte> file, const ImageShape& shape,
                       std::span<std::byte> planes, const CropFunction& region,
                       const DecodeOptions& options) {
  const Orientation& orientation = options.orientation;
  if (orientation.is_upright()) return decode_stored(file, shape, planes, region, options);
  const auto stored_region = [&](uint32_t height, uint32_t width) {
    if (orientation.transposes) std::swap(height, width);
    const CropBox whole{.left = 0, .top = 0, .width = double(width), .height = double(height)};
    return stored_box(region ? region(height, width) : whole, height, width, orientation);
  };
  stored_.resize(shape.bytes());
  STOKER_RETURN_IF_ERROR(
      decode_stored(file, stored_shape(shape, orientation), stored_, stored_region, options));
  make_upright(stored_, shape, orientation, planes);
  return {};
}

Status Decoder::decode_stored(std::span<const std::byte> file, const ImageShape& shape,
                              std::span<std::byte> planes, const CropFunction& region,
                              const DecodeOptions& options) {
  assert(shape.height >= 1 && shape.width >= 1 && planes.size() == shape.bytes());
  const RowSink target{.shape = shape,
                       .planes = planes,
                       .region = region,
                       .resizer = resizer_,
                       .pixels = pixels_,
                       .interpolation = options.interpolation};
  const Format format = detect_format(file);
  if (options.is_mask && format == Format::kPng) return read_png_classes(file, limits_, target);
  if (options.is_mask) return Status(StatusCode::kCorrupt, "a mask must be a PNG");
  switch (format) {
    case Format::kJpeg:
      return jpeg_.read(file, target);
    case Format::kPng:
      return read_png(file, limits_, target);
    case Format::kWebp:
      return read_webp(file, limits_, target);
    case Format::kUnknown:
      break;
  }
  if (file.empty()) return Status(StatusCode::kCorrupt, "the file is empty");
  return Status(StatusCode::kCorrupt, "not a JPEG, PNG or WebP file (by its first bytes)");
}

}  // namespace stoker::image
