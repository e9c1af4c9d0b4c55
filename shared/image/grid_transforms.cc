#include "shared/image/grid_transforms.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "shared/base/target_clones.h"

namespace stoker::image {
namespace {

// Coordinates of the source of each pixel of one row, in pixels.
struct SourceRow {
  std::vector<float> x, y;
};

// A row of a 2 x 3 matrix, scaled so that the result is in [-1, 1] inside the image.
using Row = std::array<float, 3>;

Row scaled_row(double a, double b, double c, uint32_t side) {
  const float half = 0.5f * static_cast<float>(side);
  return {static_cast<float>(a) / half, static_cast<float>(b) / half, static_cast<float>(c) / half};
}

[[gnu::always_inline]] inline float dot(const Row& row, float x, float y) {
  return x * row[0] + y * row[1] + row[2];
}

// From [-1, 1] to the index of a pixel, as grid_sample(align_corners=False).
[[gnu::always_inline]] inline float to_index(float normalized, float side) {
  return (normalized + 1.0f) * (side * 0.5f) - 0.5f;
}

// The pixels of a plane before the transform.
struct Source {
  const uint8_t* pixels;
  uint32_t height;
  uint32_t width;

  bool contains(float x, float y) const {
    return x >= 0 && y >= 0 && x < static_cast<float>(width) && y < static_cast<float>(height);
  }
  // `x` and `y` are whole numbers inside the image.
  uint8_t at(float x, float y) const {
    return pixels[static_cast<size_t>(y) * width + static_cast<size_t>(x)];
  }
};

STOKER_TARGET_CLONES
void sample_nearest(const Source& source, const SourceRow& from, uint8_t fill, uint8_t* to) {
  for (uint32_t i = 0; i < source.width; ++i) {
    const float x = std::nearbyint(from.x[i]), y = std::nearbyint(from.y[i]);
    to[i] = source.contains(x, y) ? source.at(x, y) : fill;
  }
}

STOKER_TARGET_CLONES
void sample_bilinear(const Source& source, const SourceRow& from, const std::optional<float>& fill,
                     uint8_t* to) {
  for (uint32_t i = 0; i < source.width; ++i) {
    const float left = std::floor(from.x[i]), top = std::floor(from.y[i]);
    const float right_part = from.x[i] - left, bottom_part = from.y[i] - top;
    float sum = 0, inside = 0;
    const auto add = [&](float x, float y, float weight) {
      if (!source.contains(x, y)) return;
      sum += weight * static_cast<float>(source.at(x, y));
      inside += weight;
    };
    add(left, top, (1 - right_part) * (1 - bottom_part));
    add(left + 1, top, right_part * (1 - bottom_part));
    add(left, top + 1, (1 - right_part) * bottom_part);
    add(left + 1, top + 1, right_part * bottom_part);
    if (fill) sum = (sum - *fill) * inside + *fill;
    to[i] = static_cast<uint8_t>(std::clamp(std::nearbyint(sum), 0.0f, 255.0f));
  }
}

// `fill_row(y, row)` computes the sources of row `y`.
template <typename FillRow>
void sample(const ImageShape& shape, Interpolation interpolation, const Fill& fill,
            std::span<std::byte> planes, const FillRow& fill_row) {
  assert(planes.size() == shape.bytes() && interpolation != Interpolation::kBicubic);
  const size_t pixels = size_t{shape.height} * shape.width;
  auto* const to = reinterpret_cast<uint8_t*>(planes.data());
  thread_local std::vector<uint8_t> original;
  thread_local SourceRow from;
  original.assign(to, to + planes.size());
  from.x.resize(shape.width);
  from.y.resize(shape.width);
  for (uint32_t y = 0; y < shape.height; ++y) {
    fill_row(y, from);
    for (uint32_t c = 0; c < shape.channels; ++c) {
      const Source source{original.data() + c * pixels, shape.height, shape.width};
      uint8_t* const row = to + c * pixels + size_t{y} * shape.width;
      if (interpolation == Interpolation::kNearest)
        sample_nearest(source, from, fill ? (*fill)[c] : uint8_t{0}, row);
      else
        sample_bilinear(source, from, fill ? std::optional<float>((*fill)[c]) : std::nullopt, row);
    }
  }
}

// Inverse of the affine transform: rows (a, b, c) and (d, e, f).
std::array<double, 6> inverse_of(const AffineParameters& affine) {
  constexpr double kDegree = std::numbers::pi / 180;
  const double turn = affine.angle * kDegree;
  const double shear_x = affine.shear_x * kDegree, shear_y = affine.shear_y * kDegree;
  const double a = std::cos(turn - shear_y) / std::cos(shear_y);
  const double b =
      -std::cos(turn - shear_y) * std::tan(shear_x) / std::cos(shear_y) - std::sin(turn);
  const double c = std::sin(turn - shear_y) / std::cos(shear_y);
  const double d =
      -std::sin(turn - shear_y) * std::tan(shear_x) / std::cos(shear_y) + std::cos(turn);
  const double scale = affine.scale;
  std::array<double, 6> matrix{d / scale, -b / scale, 0, -c / scale, a / scale, 0};
  const double x = -affine.center_x - affine.translate_x, y = -affine.center_y - affine.translate_y;
  matrix[2] = matrix[0] * x + matrix[1] * y + affine.center_x;
  matrix[5] = matrix[3] * x + matrix[4] * y + affine.center_y;
  return matrix;
}

STOKER_TARGET_CLONES
void affine_row(const Row& across, const Row& down, float y, uint32_t height, uint32_t width,
                float* xs, float* ys) {
  const auto columns = static_cast<float>(width), rows = static_cast<float>(height);
  const float first = (1.0f - columns) * 0.5f;
  for (uint32_t i = 0; i < width; ++i) {
    const float x = first + static_cast<float>(i);
    xs[i] = to_index(dot(across, x, y), columns);
    ys[i] = to_index(dot(down, x, y), rows);
  }
}

STOKER_TARGET_CLONES
void perspective_row(const Row& across, const Row& down, const Row& divisor, float y,
                     uint32_t height, uint32_t width, float* xs, float* ys) {
  const auto columns = static_cast<float>(width), rows = static_cast<float>(height);
  for (uint32_t i = 0; i < width; ++i) {
    const float x = static_cast<float>(i) + 0.5f;
    const float by = dot(divisor, x, y);
    xs[i] = to_index(dot(across, x, y) / by - 1.0f, columns);
    ys[i] = to_index(dot(down, x, y) / by - 1.0f, rows);
  }
}

}  // namespace

void affine(const ImageShape& shape, const AffineParameters& parameters,
            Interpolation interpolation, const Fill& fill, std::span<std::byte> planes) {
  const std::array<double, 6> matrix = inverse_of(parameters);
  const Row across = scaled_row(matrix[0], matrix[1], matrix[2], shape.width);
  const Row down = scaled_row(matrix[3], matrix[4], matrix[5], shape.height);
  const float first = (1.0f - static_cast<float>(shape.height)) * 0.5f;
  sample(shape, interpolation, fill, planes, [&](uint32_t y, SourceRow& row) {
    affine_row(across, down, first + static_cast<float>(y), shape.height, shape.width, row.x.data(),
               row.y.data());
  });
}

void perspective(const ImageShape& shape, const PerspectiveCoefficients& coefficients,
                 Interpolation interpolation, const Fill& fill, std::span<std::byte> planes) {
  const auto& [a, b, c, d, e, f, g, h] = coefficients;
  const Row across = scaled_row(a, b, c, shape.width);
  const Row down = scaled_row(d, e, f, shape.height);
  const Row divisor{static_cast<float>(g), static_cast<float>(h), 1.0f};
  sample(shape, interpolation, fill, planes, [&](uint32_t y, SourceRow& row) {
    perspective_row(across, down, divisor, static_cast<float>(y) + 0.5f, shape.height, shape.width,
                    row.x.data(), row.y.data());
  });
}

std::optional<PerspectiveCoefficients> perspective_coefficients(const std::array<Point, 4>& from,
                                                                const std::array<Point, 4>& to) {
  // Pivots of whole corners are above 0.01, or 0 but for the rounding.
  constexpr double kMinPivot = 1e-9;
  // Eight linear equations, solved by Gauss-Jordan elimination with row pivoting.
  std::array<std::array<double, 9>, 8> rows{};
  for (size_t i = 0; i < 4; ++i) {
    const auto [x, y] = to[i];
    rows[2 * i] = {x, y, 1, 0, 0, 0, -from[i].x * x, -from[i].x * y, from[i].x};
    rows[2 * i + 1] = {0, 0, 0, x, y, 1, -from[i].y * x, -from[i].y * y, from[i].y};
  }
  for (size_t column = 0; column < 8; ++column) {
    const auto pivot = std::max_element(rows.begin() + static_cast<ptrdiff_t>(column), rows.end(),
                                        [column](const auto& p, const auto& q) {
                                          return std::abs(p[column]) < std::abs(q[column]);
                                        });
    if (std::abs((*pivot)[column]) < kMinPivot) return std::nullopt;
    std::swap(rows[column], *pivot);
    for (size_t i = 0; i < 8; ++i) {
      if (i == column) continue;
      const double factor = rows[i][column] / rows[column][column];
      for (size_t k = column; k < 9; ++k) rows[i][k] -= factor * rows[column][k];
    }
  }
  PerspectiveCoefficients coefficients{};
  for (size_t i = 0; i < 8; ++i)
    coefficients[i] = static_cast<float>(rows[i][8] / rows[i][i]);  // torchvision's are floats
  return coefficients;
}

}  // namespace stoker::image
