// ColorJitter: other brightness, contrast, saturation and hue for a picture, in place, in
// torchvision's arithmetic for 8-bit tensors: every step ends in whole levels, cut off, not
// rounded.
//
// Each step blends the picture with another: black, its mean grey, its grey picture. A factor of 1
// leaves it as it is, 0 leaves only the other. A grey picture has neither saturation nor hue.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "shared/image/image_types.h"

namespace stoker::image {

// All take shape.bytes() bytes; factors are at least 0.
void adjust_brightness(const ImageShape& shape, double factor, std::span<std::byte> planes);
void adjust_contrast(const ImageShape& shape, double factor, std::span<std::byte> planes);
void adjust_saturation(const ImageShape& shape, double factor, std::span<std::byte> planes);
// `turn`, from -0.5 to 0.5, is a part of the circle of colours.
void adjust_hue(const ImageShape& shape, double turn, std::span<std::byte> planes);

}  // namespace stoker::image
