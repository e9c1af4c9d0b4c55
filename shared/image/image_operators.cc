#include "shared/image/image_operators.h"

#include <cstdio>
#include <string_view>

#include "shared/image/pixel_transforms.h"

namespace stoker::image {
namespace {

using Numbers = std::array<double, 8>;
using Bytes = std::span<std::byte>;

struct OperatorRow {
  std::string_view name;
  size_t numbers;  // that to_text() prints
  int decimals;    // of these
  bool moves_pixels;
  void (*apply)(const Operation& operation, const ImageShape& shape, Bytes planes);
};

void apply_affine(const Operation& operation, const ImageShape& shape, Bytes planes) {
  const Numbers& n = operation.numbers;
  affine(shape,
         {.angle = n[0],
          .translate_x = n[1],
          .translate_y = n[2],
          .scale = n[3],
          .shear_x = n[4],
          .shear_y = n[5],
          .center_x = n[6],
          .center_y = n[7]},
         operation.interpolation, operation.fill, planes);
}

void apply_erase(const Operation& operation, const ImageShape& shape, Bytes planes) {
  const Numbers& n = operation.numbers;
  erase(shape,
        {.top = static_cast<uint32_t>(n[0]),
         .left = static_cast<uint32_t>(n[1]),
         .height = static_cast<uint32_t>(n[2]),
         .width = static_cast<uint32_t>(n[3])},
        operation.fill.value_or(std::array<uint8_t, 3>{}), planes);
}

// In the order of Operator.
constexpr std::array kOperators{
    OperatorRow{"shift", 2, 0, true,
                [](const Operation& o, const ImageShape& shape, Bytes planes) {
                  shift_with_fill(shape, static_cast<int32_t>(o.numbers[0]),
                                  static_cast<int32_t>(o.numbers[1]), planes);
                }},
    OperatorRow{"flip", 0, 0, true,
                [](const Operation&, const ImageShape& shape, Bytes planes) {
                  horizontal_flip(shape, planes);
                }},
    OperatorRow{"vertical_flip", 0, 0, true,
                [](const Operation&, const ImageShape& shape, Bytes planes) {
                  vertical_flip(shape, planes);
                }},
    OperatorRow{"brightness", 1, 3, false,
                [](const Operation& o, const ImageShape& shape, Bytes planes) {
                  adjust_brightness(shape, o.numbers[0], planes);
                }},
    OperatorRow{"contrast", 1, 3, false,
                [](const Operation& o, const ImageShape& shape, Bytes planes) {
                  adjust_contrast(shape, o.numbers[0], planes);
                }},
    OperatorRow{"saturation", 1, 3, false,
                [](const Operation& o, const ImageShape& shape, Bytes planes) {
                  adjust_saturation(shape, o.numbers[0], planes);
                }},
    OperatorRow{"hue", 1, 3, false,
                [](const Operation& o, const ImageShape& shape, Bytes planes) {
                  adjust_hue(shape, o.numbers[0], planes);
                }},
    OperatorRow{"sharpness", 1, 3, false,
                [](const Operation& o, const ImageShape& shape, Bytes planes) {
                  adjust_sharpness(shape, o.numbers[0], planes);
                }},
    OperatorRow{"grayscale", 0, 0, false,
                [](const Operation&, const ImageShape& shape, Bytes planes) {
                  make_grayscale(shape, planes);
                }},
    OperatorRow{"invert", 0, 0, false,
                [](const Operation&, const ImageShape&, Bytes planes) { invert(planes); }},
    OperatorRow{"posterize", 1, 0, false,
                [](const Operation& o, const ImageShape&, Bytes planes) {
                  posterize(static_cast<int>(o.numbers[0]), planes);
                }},
    OperatorRow{"solarize", 1, 1, false,
                [](const Operation& o, const ImageShape&, Bytes planes) {
                  solarize(o.numbers[0], planes);
                }},
    OperatorRow{"autocontrast", 0, 0, false,
                [](const Operation&, const ImageShape& shape, Bytes planes) {
                  autocontrast(shape, planes);
                }},
    OperatorRow{
        "equalize", 0, 0, false,
        [](const Operation&, const ImageShape& shape, Bytes planes) { equalize(shape, planes); }},
    OperatorRow{"gaussian_blur", 2, 3, false,
                [](const Operation& o, const ImageShape& shape, Bytes planes) {
                  gaussian_blur(shape, static_cast<int>(o.numbers[0]), o.numbers[1], planes);
                }},
    OperatorRow{"erase", 4, 0, false, apply_erase},
    OperatorRow{"affine", 8, 3, true, apply_affine},
    OperatorRow{"perspective", 8, 6, true,
                [](const Operation& o, const ImageShape& shape, Bytes planes) {
                  perspective(shape, o.numbers, o.interpolation, o.fill, planes);
                }},
};
static_assert(kOperators.size() == static_cast<size_t>(Operator::kPerspective) + 1);

const OperatorRow& row_of(Operator name) { return kOperators[static_cast<size_t>(name)]; }

}  // namespace

void apply(const Operation& operation, const ImageShape& shape, std::span<std::byte> planes) {
  row_of(operation.name).apply(operation, shape, planes);
}

bool moves_pixels(Operator name) { return row_of(name).moves_pixels; }

std::string to_text(const Operation& operation) {
  const OperatorRow& row = row_of(operation.name);
  std::string text(row.name);
  for (size_t i = 0; i < row.numbers; ++i) {
    char number[48];
    std::snprintf(number, sizeof number, "%c%.*f", i == 0 ? '=' : ',', row.decimals,
                  operation.numbers[i]);
    text += number;
  }
  return text;
}

}  // namespace stoker::image
