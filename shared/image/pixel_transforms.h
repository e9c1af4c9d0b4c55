// pixel_transforms: in-place augmentation of decoded images. The random parameters are sampled by
// the caller.
//
// Threads:  pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shared/image/image_types.h"

namespace stoker::image {

// Change brightness, contrast, saturation and hue of an image in place, with torchvision's
// arithmetic for 8-bit tensors: each step truncates to integer levels and does not round.
//
// Each step except hue blends the image with another one: black, its mean gray, its gray version. A
// factor of 1 leaves the image unchanged, 0 yields only the other image. Saturation and hue do not
// affect a gray image. All functions take shape.bytes() bytes; factors are at least 0.
void adjust_brightness(const ImageShape& shape, double factor, std::span<std::byte> planes);
void adjust_contrast(const ImageShape& shape, double factor, std::span<std::byte> planes);
void adjust_saturation(const ImageShape& shape, double factor, std::span<std::byte> planes);
// `turn` is a fraction of the hue circle, from -0.5 to 0.5.
void adjust_hue(const ImageShape& shape, double turn, std::span<std::byte> planes);

// Flips the image horizontally, in place.
void horizontal_flip(const ImageShape& shape, std::span<std::byte> planes);

// Shifts an image within its frame, in place, and fills with black. The pixel at (y, x) becomes the
// one that was at (y + down, x + across). `planes`: shape.bytes() bytes; both distances are less
// than the side of the image.
void shift_with_fill(const ImageShape& shape, int32_t down, int32_t across,
                     std::span<std::byte> planes);

}  // namespace stoker::image
