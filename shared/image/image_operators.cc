#include "shared/image/image_operators.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "shared/image/pixel_transforms.h"

namespace stoker::image {
namespace {

using Numbers = std::array<double, 8>;
using MutableBytes = std::span<std::byte>;

struct OperatorRow {
  std::string_view name;
  size_t numbers;  // that to_text() prints
  int decimals;    // of these
  bool moves_pixels;
  void (*apply)(const Operation& operation, const ImageShape& shape, MutableBytes planes);
};

void apply_affine(const Operation& operation, const ImageShape& shape, MutableBytes planes) {
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

void apply_erase(const Operation& operation, const ImageShape& shape, MutableBytes planes) {
  const Numbers& n = operation.numbers;
  erase(shape,
        {.top = static_cast<uint32_t>(n[0]),
         .left = static_cast<uint32_t>(n[1]),
         .height = static_cast<uint32_t>(n[2]),
         .width = static_cast<uint32_t>(n[3])},
        operation.fill.value_or(std::array<uint8_t, 3>{}), planes);
}

// Between kMixBegin and kMixEnd.
struct Mix {
  std::vector<std::byte> image;
  std::vector<float> sum;
};
Mix& mix_of_thread() {
  thread_local Mix mix;
  return mix;
}

void add_to_mix(float weight, std::span<const std::byte> planes) {
  std::vector<float>& sum = mix_of_thread().sum;
  for (size_t i = 0; i < planes.size(); ++i)
    sum[i] += weight * static_cast<float>(std::to_integer<int>(planes[i]));
}

void begin_mix(const Operation& operation, const ImageShape&, MutableBytes planes) {
  Mix& mix = mix_of_thread();
  mix.image.assign(planes.begin(), planes.end());
  mix.sum.assign(planes.size(), 0.0f);
  add_to_mix(static_cast<float>(operation.numbers[0]), planes);
}

void add_mix(const Operation& operation, const ImageShape&, MutableBytes planes) {
  add_to_mix(static_cast<float>(operation.numbers[0]), planes);
  std::ranges::copy(mix_of_thread().image, planes.begin());
}

void end_mix(const Operation&, const ImageShape&, MutableBytes planes) {
  const std::vector<float>& sum = mix_of_thread().sum;
  for (size_t i = 0; i < planes.size(); ++i)
    planes[i] = static_cast<std::byte>(std::clamp(sum[i], 0.0f, 255.0f));
}

// In the order of Operator.
constexpr std::array kOperators{
    OperatorRow{"shift", 2, 0, true,
                [](const Operation& o, const ImageShape& shape, MutableBytes planes) {
                  shift_with_fill(shape, static_cast<int32_t>(o.numbers[0]),
                                  static_cast<int32_t>(o.numbers[1]), planes);
                }},
    OperatorRow{"flip", 0, 0, true,
                [](const Operation&, const ImageShape& shape, MutableBytes planes) {
                  horizontal_flip(shape, planes);
                }},
    OperatorRow{"vertical_flip", 0, 0, true,
                [](const Operation&, const ImageShape& shape, MutableBytes planes) {
                  vertical_flip(shape, planes);
                }},
    OperatorRow{"brightness", 1, 3, false,
                [](const Operation& o, const ImageShape& shape, MutableBytes planes) {
                  adjust_brightness(shape, o.numbers[0], planes);
                }},
    OperatorRow{"contrast", 1, 3, false,
                [](const Operation& o, const ImageShape& shape, MutableBytes planes) {
                  adjust_contrast(shape, o.numbers[0], planes);
                }},
    OperatorRow{"saturation", 1, 3, false,
                [](const Operation& o, const ImageShape& shape, MutableBytes planes) {
                  adjust_saturation(shape, o.numbers[0], planes);
                }},
    OperatorRow{"hue", 1, 3, false,
                [](const Operation& o, const ImageShape& shape, MutableBytes planes) {
                  adjust_hue(shape, o.numbers[0], planes);
                }},
    OperatorRow{"sharpness", 1, 3, false,
                [](const Operation& o, const ImageShape& shape, MutableBytes planes) {
                  adjust_sharpness(shape, o.numbers[0], planes);
                }},
    OperatorRow{"grayscale", 0, 0, false,
                [](const Operation&, const ImageShape& shape, MutableBytes planes) {
                  make_grayscale(shape, planes);
                }},
    OperatorRow{"invert", 0, 0, false,
                [](const Operation&, const ImageShape&, MutableBytes planes) { invert(planes); }},
    OperatorRow{"posterize", 1, 0, false,
                [](const Operation& o, const ImageShape&, MutableBytes planes) {
                  posterize(static_cast<int>(o.numbers[0]), planes);
                }},
    OperatorRow{"solarize", 1, 1, false,
                [](const Operation& o, const ImageShape&, MutableBytes planes) {
                  solarize(o.numbers[0], planes);
                }},
    OperatorRow{"autocontrast", 0, 0, false,
                [](const Operation&, const ImageShape& shape, MutableBytes planes) {
                  autocontrast(shape, planes);
                }},
    OperatorRow{"equalize", 0, 0, false,
                [](const Operation&, const ImageShape& shape, MutableBytes planes) {
                  equalize(shape, planes);
                }},
    OperatorRow{"gaussian_blur", 2, 3, false,
                [](const Operation& o, const ImageShape& shape, MutableBytes planes) {
                  gaussian_blur(shape, static_cast<int>(o.numbers[0]), o.numbers[1], planes);
                }},
    OperatorRow{"erase", 4, 0, false, apply_erase},
    OperatorRow{"affine", 8, 3, true, apply_affine},
    OperatorRow{"perspective", 8, 6, true,
                [](const Operation& o, const ImageShape& shape, MutableBytes planes) {
                  perspective(shape, o.numbers, o.interpolation, o.fill, planes);
                }},
    OperatorRow{"mix", 1, 3, false, begin_mix},
    OperatorRow{"add", 1, 3, false, add_mix},
    OperatorRow{"end", 0, 0, false, end_mix},
};
static_assert(kOperators.size() == static_cast<size_t>(Operator::kMixEnd) + 1);

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
