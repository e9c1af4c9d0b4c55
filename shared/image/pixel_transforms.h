// pixel_transforms: in-place augmentation of decoded images. The random parameters are sampled by
// the caller.
//
// Threads:  pure functions.
#pragma once

#include <array>
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

// As adjust_sharpness: blends the image with a blurred one; factors above 1 sharpen. An image with a
// side below 3 stays unchanged.
void adjust_sharpness(const ImageShape& shape, double factor, std::span<std::byte> planes);
// Each channel becomes the gray version. A gray image stays unchanged.
void make_grayscale(const ImageShape& shape, std::span<std::byte> planes);
void invert(std::span<std::byte> planes);
// Keeps the upper `bits` of each level; 0 to 8.
void posterize(int bits, std::span<std::byte> planes);
// Inverts levels of at least `threshold`.
void solarize(double threshold, std::span<std::byte> planes);
// Stretches the levels of each channel to 0 to 255.
void autocontrast(const ImageShape& shape, std::span<std::byte> planes);
// Equalizes the histogram of each channel.
void equalize(const ImageShape& shape, std::span<std::byte> planes);
// The kernel is a square with an odd side; half of it, rounded down, is less than the sides of the
// image, which is continued by reflection. Within one level of torchvision.
void gaussian_blur(const ImageShape& shape, int kernel_size, double sigma,
                   std::span<std::byte> planes);

// A rectangle of pixels inside the image.
struct PixelBox {
  uint32_t top = 0;
  uint32_t left = 0;
  uint32_t height = 0;
  uint32_t width = 0;
};
// `levels`: of each channel.
void erase(const ImageShape& shape, const PixelBox& box, const std::array<uint8_t, 3>& levels,
           std::span<std::byte> planes);

// Flip the image, in place.
void horizontal_flip(const ImageShape& shape, std::span<std::byte> planes);
void vertical_flip(const ImageShape& shape, std::span<std::byte> planes);

// Shifts an image within its frame, in place, and fills with black. The pixel at (y, x) becomes the
// one that was at (y + down, x + across). `planes`: shape.bytes() bytes; both distances are less
// than the side of the image.
void shift_with_fill(const ImageShape& shape, int32_t down, int32_t across,
                     std::span<std::byte> planes);

}  // namespace stoker::image
