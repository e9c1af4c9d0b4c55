// exif_orientation: how a camera was held, as a JPEG, PNG or WebP file says in its EXIF data, and what
// turns its pixels upright.
//
// Threads:  pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "shared/image/image_types.h"

namespace stoker::image {

// Makes stored pixels upright: rows and columns are swapped, then the result is flipped.
struct Orientation {
  bool transposes = false;
  bool flips_across = false;  // left and right
  bool flips_down = false;
  bool operator==(const Orientation&) const = default;

  bool is_upright() const { return *this == Orientation{}; }
};

// Of the tag Orientation in the first directory; upright if there is none or it is not readable, as
// in Pillow's ImageOps.exif_transpose(); XMP is not read.
Orientation exif_orientation(std::span<const std::byte> file);

// The shape of the stored pixels of an upright image.
ImageShape stored_shape(const ImageShape& upright, const Orientation& orientation);
// The stored region of a region of the upright image, which has this height and width.
CropBox stored_box(const CropBox& upright, double height, double width,
                   const Orientation& orientation);
// `stored`: planes of stored_shape(). `upright`: as many bytes, not the same ones.
void make_upright(std::span<const std::byte> stored, const ImageShape& shape,
                  const Orientation& orientation, std::span<std::byte> upright);

}  // namespace stoker::image
