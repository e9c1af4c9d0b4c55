#include "shared/image/exif_orientation.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "shared/image/pixel_transforms.h"

namespace stoker::image {
namespace {

using Bytes = std::span<const std::byte>;

enum class ByteOrder { kLittle, kBig };

// An unsigned number of `size` bytes; empty beyond the end.
std::optional<uint32_t> number_at(Bytes bytes, size_t offset, size_t size, ByteOrder order) {
  if (offset > bytes.size() || bytes.size() - offset < size) return std::nullopt;
  uint32_t number = 0;
  for (size_t i = 0; i < size; ++i) {
    const size_t place = order == ByteOrder::kBig ? i : size - 1 - i;
    number = number << 8 | std::to_integer<uint32_t>(bytes[offset + place]);
  }
  return number;
}

bool has_text_at(Bytes bytes, size_t offset, std::string_view text) {
  return offset <= bytes.size() && bytes.size() - offset >= text.size() &&
         std::memcmp(bytes.data() + offset, text.data(), text.size()) == 0;
}

// `size` bytes from `offset`, or fewer at the end of `bytes`.
Bytes part_of(Bytes bytes, size_t offset, size_t size) {
  if (offset >= bytes.size()) return {};
  return bytes.subspan(offset, std::min(size, bytes.size() - offset));
}

constexpr std::string_view kExifPrefix("Exif\0\0", 6);

// The EXIF data of a JPEG: its first APP1 segment with the prefix, before the image data.
Bytes exif_of_jpeg(Bytes file) {
  constexpr uint32_t kApp1 = 0xe1, kSos = 0xda, kEoi = 0xd9;
  size_t at = 2;
  while (has_text_at(file, at, "\xff")) {
    const auto marker = number_at(file, at + 1, 1, ByteOrder::kBig);
    const auto length = number_at(file, at + 2, 2, ByteOrder::kBig);
    if (marker == 0xff) {  // fill byte
      ++at;
      continue;
    }
    if (!marker || !length || *length < 2 || marker == kSos || marker == kEoi) return {};
    const Bytes content = part_of(file, at + 4, *length - 2);
    if (marker == kApp1 && has_text_at(content, 0, kExifPrefix))
      return content.subspan(kExifPrefix.size());
    at += 2 + size_t{*length};
  }
  return {};
}

Bytes exif_of_png(Bytes file) {
  constexpr size_t kMagicBytes = 8, kChunkBytes = 12;  // length, type and checksum
  size_t at = kMagicBytes;
  while (const auto length = number_at(file, at, 4, ByteOrder::kBig)) {
    if (has_text_at(file, at + 4, "eXIf")) return part_of(file, at + 8, *length);
    at += kChunkBytes + size_t{*length};
  }
  return {};
}

Bytes exif_of_webp(Bytes file) {
  constexpr size_t kHeaderBytes = 12, kChunkBytes = 8;
  size_t at = kHeaderBytes;
  while (const auto length = number_at(file, at + 4, 4, ByteOrder::kLittle)) {
    if (has_text_at(file, at, "EXIF")) {
      const Bytes content = part_of(file, at + kChunkBytes, *length);
      return has_text_at(content, 0, kExifPrefix) ? content.subspan(kExifPrefix.size()) : content;
    }
    at += kChunkBytes + *length + *length % 2;
  }
  return {};
}

// The tag Orientation of the first directory of a TIFF header: 1 to 8; 1 if there is none.
uint32_t orientation_tag(Bytes tiff) {
  constexpr uint32_t kOrientation = 0x0112, kShort = 3, kLong = 4, kSignedLong = 9;
  constexpr size_t kEntryBytes = 12;
  const ByteOrder order = has_text_at(tiff, 0, "MM") ? ByteOrder::kBig : ByteOrder::kLittle;
  if (order == ByteOrder::kLittle && !has_text_at(tiff, 0, "II")) return 1;
  const auto directory = number_at(tiff, 4, 4, order);
  if (!directory) return 1;
  const auto entries = number_at(tiff, *directory, 2, order);
  for (uint32_t i = 0; i < entries.value_or(0); ++i) {
    const size_t entry = size_t{*directory} + 2 + i * kEntryBytes;
    const auto tag = number_at(tiff, entry, 2, order);
    if (!tag) return 1;
    if (tag != kOrientation) continue;
    const auto type = number_at(tiff, entry + 2, 2, order);
    if (type != kShort && type != kLong && type != kSignedLong) return 1;
    const auto value = number_at(tiff, entry + 8, type == kShort ? 2 : 4, order);
    return value && *value >= 1 && *value <= 8 ? *value : 1;
  }
  return 1;
}

}  // namespace

Orientation exif_orientation(std::span<const std::byte> file) {
  // By the value of the tag, from 1.
  constexpr std::array<Orientation, 8> kOrientations{{{false, false, false},
                                                      {false, true, false},
                                                      {false, true, true},
                                                      {false, false, true},
                                                      {true, false, false},
                                                      {true, true, false},
                                                      {true, true, true},
                                                      {true, false, true}}};
  Bytes exif;
  switch (detect_format(file)) {
    case Format::kJpeg:
      exif = exif_of_jpeg(file);
      break;
    case Format::kPng:
      exif = exif_of_png(file);
      break;
    case Format::kWebp:
      exif = exif_of_webp(file);
      break;
    case Format::kUnknown:
      break;
  }
  return kOrientations[orientation_tag(exif) - 1];
}

ImageShape stored_shape(const ImageShape& upright, const Orientation& orientation) {
  if (!orientation.transposes) return upright;
  return {.channels = upright.channels, .height = upright.width, .width = upright.height};
}

CropBox stored_box(const CropBox& upright, double height, double width,
                   const Orientation& orientation) {
  CropBox box = upright;
  if (orientation.flips_across) box.left = std::max(0.0, width - box.left - box.width);
  if (orientation.flips_down) box.top = std::max(0.0, height - box.top - box.height);
  if (!orientation.transposes) return box;
  return {.left = box.top, .top = box.left, .width = box.height, .height = box.width};
}

void make_upright(std::span<const std::byte> stored, const ImageShape& shape,
                  const Orientation& orientation, std::span<std::byte> upright) {
  assert(stored.size() == shape.bytes() && upright.size() == shape.bytes());
  const size_t pixels = size_t{shape.height} * shape.width;
  for (uint32_t c = 0; c < shape.channels; ++c) {
    const std::byte* const from = stored.data() + c * pixels;
    std::byte* const to = upright.data() + c * pixels;
    if (!orientation.transposes) {
      std::copy_n(from, pixels, to);
      continue;
    }
    for (uint32_t y = 0; y < shape.height; ++y)
      for (uint32_t x = 0; x < shape.width; ++x)
        to[size_t{y} * shape.width + x] = from[size_t{x} * shape.height + y];
  }
  if (orientation.flips_across) horizontal_flip(shape, upright);
  if (orientation.flips_down) vertical_flip(shape, upright);
}

}  // namespace stoker::image
