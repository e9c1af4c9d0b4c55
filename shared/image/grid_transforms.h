// grid_transforms: affine and perspective transforms of decoded images, in place. They compute for
// each pixel where it comes from, in the arithmetic of torchvision for 8-bit tensors: float32
// coordinates, rounded to the nearest pixel, or bilinear between four of them.
//
// Nearest is torchvision's, except where a coordinate is halfway between two pixels up to the last
// bits of its floats. Bilinear is within one level.
//
// Threads:  pure functions; each thread keeps its scratch memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shared/image/image_types.h"

namespace stoker::image {

// Of pixels that come from outside the image: one level per channel. Without it they are black, and
// bilinear values at the edge are blended with black; torchvision's fill 0 differs from its None.
using Fill = std::optional<std::array<uint8_t, 3>>;

// Angles in degrees, clockwise; distances in pixels, right and down. The center is that of the image,
// moved by center_x and center_y.
struct AffineParameters {
  double angle = 0;
  double translate_x = 0;
  double translate_y = 0;
  double scale = 1;
  double shear_x = 0;
  double shear_y = 0;
  double center_x = 0;
  double center_y = 0;
};
void affine(const ImageShape& shape, const AffineParameters& parameters,
            Interpolation interpolation, const Fill& fill, std::span<std::byte> planes);

// The pixel at (x, y) comes from ((a x + b y + c) / (g x + h y + 1), (d x + e y + f) / (g x + h y + 1)).
using PerspectiveCoefficients = std::array<double, 8>;  // a to h
void perspective(const ImageShape& shape, const PerspectiveCoefficients& coefficients,
                 Interpolation interpolation, const Fill& fill, std::span<std::byte> planes);

struct Point {
  double x = 0;
  double y = 0;
};
// Corners in the order top left, top right, bottom right, bottom left. The coefficients of the
// transform that moves `from` to `to`; empty if none or many do, because corners are on one line.
std::optional<PerspectiveCoefficients> perspective_coefficients(const std::array<Point, 4>& from,
                                                                const std::array<Point, 4>& to);

}  // namespace stoker::image
