#include "shared/image/color_jitter.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>

#include "shared/base/vector_clones.h"

namespace stoker::image {
namespace {

struct Planes {
  uint8_t* red;
  uint8_t* green;
  uint8_t* blue;
  size_t pixels;  // of one plane
};

Planes planes_of(const PictureShape& shape, std::span<std::byte> planes) {
  assert(shape.channels == 3 && planes.size() == shape.bytes());
  const size_t pixels = size_t{shape.height} * shape.width;
  auto* first = reinterpret_cast<uint8_t*>(planes.data());
  return {.red = first, .green = first + pixels, .blue = first + 2 * pixels, .pixels = pixels};
}

[[gnu::always_inline]] inline uint8_t cut_off(float level) {
  return static_cast<uint8_t>(static_cast<int32_t>(std::min(std::max(level, 0.0f), 255.0f)));
}

[[gnu::always_inline]] inline uint8_t grey_of(uint8_t red, uint8_t green, uint8_t blue) {
  return cut_off(0.2989f * red + 0.587f * green + 0.114f * blue);
}

// The same for every pixel of a level.
void blend_levels(float factor, float other, std::span<std::byte> planes) {
  std::array<uint8_t, 256> table;
  for (size_t level = 0; level < table.size(); ++level)
    table[level] = cut_off(factor * static_cast<float>(level) + other);
  for (std::byte& value : planes) value = std::byte{table[std::to_integer<size_t>(value)]};
}

STOKER_VECTOR_CLONES
uint64_t sum_of_grey(const Planes& picture) {
  uint64_t sum = 0;
  for (size_t i = 0; i < picture.pixels; ++i)
    sum += grey_of(picture.red[i], picture.green[i], picture.blue[i]);
  return sum;
}

uint64_t sum_of(std::span<const std::byte> plane) {
  uint64_t sum = 0;
  for (const std::byte value : plane) sum += std::to_integer<uint64_t>(value);
  return sum;
}

STOKER_VECTOR_CLONES
void blend_with_grey(const Planes& picture, float factor, float rest) {
  uint8_t* __restrict red = picture.red;
  uint8_t* __restrict green = picture.green;
  uint8_t* __restrict blue = picture.blue;
  for (size_t i = 0; i < picture.pixels; ++i) {
    const float grey = rest * grey_of(red[i], green[i], blue[i]);
    red[i] = cut_off(factor * red[i] + grey);
    green[i] = cut_off(factor * green[i] + grey);
    blue[i] = cut_off(factor * blue[i] + grey);
  }
}

// The level of a colour `place` sixths of the circle away from red, at hue `sixths` of it.
[[gnu::always_inline]] inline uint8_t colour_level(float place, float sixths, float most,
                                                   float spread) {
  float turn = place + sixths;
  turn = turn >= 6.0f ? turn - 6.0f : turn;
  const float away = std::max(0.0f, std::min(1.0f, std::min(turn, 4.0f - turn)));
  // torchvision's way from [0, 1] back to levels: times 255.999, cut off.
  return cut_off((most - spread * away) * (255.999f / 255.0f));
}

STOKER_VECTOR_CLONES
void turn_hue(const Planes& picture, float sixths) {
  uint8_t* __restrict reds = picture.red;
  uint8_t* __restrict greens = picture.green;
  uint8_t* __restrict blues = picture.blue;
  for (size_t i = 0; i < picture.pixels; ++i) {
    const float red = reds[i], green = greens[i], blue = blues[i];
    const float most = std::max(red, std::max(green, blue));
    const float spread = most - std::min(red, std::min(green, blue));
    const float divisor = spread > 0.0f ? spread : 1.0f;
    const float from_blue = 4.0f + (red - green) / divisor;
    const float from_green = 2.0f + (blue - red) / divisor;
    const float from_red = (green - blue) / divisor;
    const float not_red = most == green ? from_green : from_blue;
    float hue = (most == red ? from_red : not_red) + sixths;
    hue = hue < 0.0f ? hue + 6.0f : hue;
    hue = hue >= 6.0f ? hue - 6.0f : hue;
    reds[i] = colour_level(5.0f, hue, most, spread);
    greens[i] = colour_level(3.0f, hue, most, spread);
    blues[i] = colour_level(1.0f, hue, most, spread);
  }
}

}  // namespace

void change_brightness(const PictureShape&, double factor, std::span<std::byte> planes) {
  blend_levels(static_cast<float>(factor), 0.0f, planes);
}

void change_contrast(const PictureShape& shape, double factor, std::span<std::byte> planes) {
  const uint64_t sum = shape.channels == 3 ? sum_of_grey(planes_of(shape, planes)) : sum_of(planes);
  const double mean = static_cast<double>(sum) / (double(shape.height) * shape.width);
  blend_levels(static_cast<float>(factor),
               static_cast<float>(1 - factor) * static_cast<float>(mean), planes);
}

void change_saturation(const PictureShape& shape, double factor, std::span<std::byte> planes) {
  if (shape.channels == 1) return;
  blend_with_grey(planes_of(shape, planes), static_cast<float>(factor),
                  static_cast<float>(1 - factor));
}

void change_hue(const PictureShape& shape, double turn, std::span<std::byte> planes) {
  if (shape.channels == 3) turn_hue(planes_of(shape, planes), static_cast<float>(turn * 6));
}

}  // namespace stoker::image
