// Random augmentation of decoded pictures, in place: what is drawn at random is drawn elsewhere.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shared/image/image_types.h"

namespace stoker::image {

// Other brightness, contrast, saturation and hue for a picture, in place, in
// torchvision's arithmetic for 8-bit tensors: every step ends in whole levels, cut off, not
// rounded.
//
// Each step blends the picture with another: black, its mean grey, its grey picture. A factor of 1
// leaves it as it is, 0 leaves only the other. A grey picture has neither saturation nor hue.
// All take shape.bytes() bytes; factors are at least 0.
void adjust_brightness(const ImageShape& shape, double factor, std::span<std::byte> planes);
void adjust_contrast(const ImageShape& shape, double factor, std::span<std::byte> planes);
void adjust_saturation(const ImageShape& shape, double factor, std::span<std::byte> planes);
// `turn`, from -0.5 to 0.5, is a part of the circle of colours.
void adjust_hue(const ImageShape& shape, double turn, std::span<std::byte> planes);

// A picture's left becomes its right, in place.
void horizontal_flip(const ImageShape& shape, std::span<std::byte> planes);

// Moves a picture within its frame, in place; what comes in from outside is black. The pixel at (y, x) becomes the one that was at (y + down, x + across). `planes`: shape.bytes()
// bytes; both distances are less than the picture's side.
void shift_with_fill(const ImageShape& shape, int32_t down, int32_t across,
                     std::span<std::byte> planes);

}  // namespace stoker::image
