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

#include "shared/image/picture.h"

namespace stoker::image {

// All take shape.bytes() bytes; factors are at least 0.
void change_brightness(const PictureShape& shape, double factor, std::span<std::byte> planes);
void change_contrast(const PictureShape& shape, double factor, std::span<std::byte> planes);
void change_saturation(const PictureShape& shape, double factor, std::span<std::byte> planes);
// `turn`, from -0.5 to 0.5, is a part of the circle of colours.
void change_hue(const PictureShape& shape, double turn, std::span<std::byte> planes);

}  // namespace stoker::image
