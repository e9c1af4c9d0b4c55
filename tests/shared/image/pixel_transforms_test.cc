#include "shared/image/pixel_transforms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace stoker::image {
namespace {

using Planes = std::vector<std::byte>;
using Color = std::array<int, 3>;

constexpr ImageShape kColors{.channels = 3, .height = 61, .width = 67};
constexpr ImageShape kGray{.channels = 1, .height = 61, .width = 67};

Planes random_planes(const ImageShape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  Planes planes(shape.bytes());
  EXPECT_FALSE(planes.empty());
  // Includes black, white and gray pixels, whose hue is a division by zero.
  for (std::byte& value : planes) {
    const auto level = static_cast<uint32_t>(random());
    value = static_cast<std::byte>(random() % 3 == 0 ? level % 3 * 127 : level % 256);
  }
  return planes;
}

Color color_at(const Planes& planes, size_t pixel) {
  const size_t pixels = planes.size() / 3;
  return {std::to_integer<int>(planes[pixel]), std::to_integer<int>(planes[pixels + pixel]),
          std::to_integer<int>(planes[2 * pixels + pixel])};
}

int cut(float level) { return static_cast<int>(std::clamp(level, 0.0f, 255.0f)); }
int gray(const Color& c) { return cut(0.2989f * c[0] + 0.587f * c[1] + 0.114f * c[2]); }

// torchvision's _blend() for one value.
int blended(double factor, float value, float other) {
  return cut(static_cast<float>(factor) * value + static_cast<float>(1 - factor) * other);
}

// Textbook conversion: to HSV and back through the six cases.
Color flipped(const Color& color, double turn) {
  const double r = color[0] / 255.0, g = color[1] / 255.0, b = color[2] / 255.0;
  const double max_channel = std::max({r, g, b}), spread = max_channel - std::min({r, g, b});
  double hue = 0;
  if (spread > 0) {
    if (max_channel == r)
      hue = std::fmod((g - b) / spread + 6, 6) / 6;
    else if (max_channel == g)
      hue = ((b - r) / spread + 2) / 6;
    else
      hue = ((r - g) / spread + 4) / 6;
  }
  const double saturation = max_channel > 0 ? spread / max_channel : 0;
  hue = hue + turn - std::floor(hue + turn);
  const double sixth = std::floor(hue * 6), f = hue * 6 - sixth;
  const double p = max_channel * (1 - saturation), q = max_channel * (1 - f * saturation),
               t = max_channel * (1 - (1 - f) * saturation);
  const std::array<std::array<double, 3>, 6> cases{{{max_channel, t, p},
                                                    {q, max_channel, p},
                                                    {p, max_channel, t},
                                                    {p, q, max_channel},
                                                    {t, p, max_channel},
                                                    {max_channel, p, q}}};
  Color result;
  for (size_t i = 0; i < 3; ++i)
    result[i] = static_cast<int>(cases[static_cast<size_t>(sixth) % 6][i] * 255.999);
  return result;
}

TEST(ColorJitterTest, BlendsWithBlackForBrightness) {
  for (const double factor : {0.0, 0.3, 1.0, 1.7}) {
    const Planes before = random_planes(kColors, 1);
    Planes after = before;
    adjust_brightness(kColors, factor, after);
    for (size_t i = 0; i < after.size(); ++i)
      ASSERT_EQ(std::to_integer<int>(after[i]),
                blended(factor, float(std::to_integer<uint8_t>(before[i])), 0));
  }
}

TEST(ColorJitterTest, BlendsWithMeanGrayForContrast) {
  for (const double factor : {0.0, 0.3, 1.0, 1.7}) {
    const Planes before = random_planes(kColors, 2);
    double sum = 0;
    const size_t pixels = before.size() / 3;
    for (size_t i = 0; i < pixels; ++i) sum += gray(color_at(before, i));
    Planes after = before;
    adjust_contrast(kColors, factor, after);
    for (size_t i = 0; i < after.size(); ++i)
      ASSERT_EQ(std::to_integer<int>(after[i]),
                blended(factor, float(std::to_integer<uint8_t>(before[i])),
                        static_cast<float>(sum / static_cast<double>(pixels))));
  }
}

TEST(ColorJitterTest, BlendsWithGrayImageForSaturation) {
  for (const double factor : {0.0, 0.3, 1.0, 1.7}) {
    const Planes before = random_planes(kColors, 3);
    Planes after = before;
    adjust_saturation(kColors, factor, after);
    for (size_t i = 0; i < before.size() / 3; ++i) {
      const Color was = color_at(before, i), is = color_at(after, i);
      for (size_t c = 0; c < 3; ++c)
        ASSERT_EQ(is[c],
                  blended(factor, static_cast<float>(was[c]), static_cast<float>(gray(was))));
    }
  }
}

TEST(ColorJitterTest, RotatesHueCircle) {
  for (const double turn : {-0.5, -0.13, 0.0, 0.07, 1.0 / 3, 0.5}) {
    const Planes before = random_planes(kColors, 4);
    Planes after = before;
    adjust_hue(kColors, turn, after);
    for (size_t i = 0; i < before.size() / 3; ++i) {
      const Color expected = flipped(color_at(before, i), turn), is = color_at(after, i);
      // Truncation after float arithmetic can differ by one level.
      for (size_t c = 0; c < 3; ++c) ASSERT_NEAR(is[c], expected[c], 1) << i;
    }
  }
}

TEST(ColorJitterTest, TurnsRedToGreenByThirdOfHueCircle) {
  const ImageShape one{.channels = 3, .height = 1, .width = 1};
  Planes red{std::byte{255}, std::byte{0}, std::byte{0}};
  adjust_hue(one, 1.0 / 3, red);
  EXPECT_EQ(color_at(red, 0), (Color{0, 255, 0}));
}

TEST(ColorJitterTest, ChangesNothingWithNeutralFactors) {
  const Planes before = random_planes(kColors, 5);
  Planes after = before;
  adjust_brightness(kColors, 1, after);
  adjust_contrast(kColors, 1, after);
  adjust_hue(kColors, 0, after);
  EXPECT_EQ(after, before);
}

TEST(ColorJitterTest, PreservesGrayImageOnSaturationAndHue) {
  const Planes before = random_planes(kGray, 6);
  Planes after = before;
  adjust_saturation(kGray, 0.2, after);
  adjust_hue(kGray, 0.4, after);
  EXPECT_EQ(after, before);
  adjust_contrast(kGray, 0, after);
  EXPECT_EQ(std::count(after.begin(), after.end(), after[0]), static_cast<int64_t>(after.size()));
}

// Flips and shifts, checked against the definition pixel by pixel.
std::vector<std::byte> numbered(const ImageShape& shape) {
  std::vector<std::byte> planes(shape.bytes());
  for (size_t i = 0; i < planes.size(); ++i) planes[i] = static_cast<std::byte>(i * 31 % 251 + 1);
  return planes;
}

std::byte at(const std::vector<std::byte>& planes, const ImageShape& shape, uint32_t c, int64_t y,
             int64_t x) {
  if (y < 0 || x < 0 || y >= shape.height || x >= shape.width) return std::byte{0};
  return planes[(size_t{c} * shape.height + static_cast<size_t>(y)) * shape.width +
                static_cast<size_t>(x)];
}

TEST(HorizontalFlipTest, FlipsImageOfAnyWidth) {
  for (uint32_t width = 1; width < 140; ++width) {
    const ImageShape shape{.channels = 3, .height = 2, .width = width};
    const auto before = numbered(shape);
    auto after = before;
    horizontal_flip(shape, after);
    for (uint32_t c = 0; c < 3; ++c)
      for (uint32_t y = 0; y < 2; ++y)
        for (uint32_t x = 0; x < width; ++x)
          ASSERT_EQ(at(after, shape, c, y, x), at(before, shape, c, y, width - 1 - x)) << width;
  }
}

TEST(ShiftWithFillTest, ShiftsInAllDirectionsAndFillsWithBlack) {
  const ImageShape shape{.channels = 3, .height = 7, .width = 9};
  const auto before = numbered(shape);
  for (int32_t down = -6; down <= 6; ++down) {
    for (int32_t across = -8; across <= 8; ++across) {
      auto after = before;
      shift_with_fill(shape, down, across, after);
      for (uint32_t c = 0; c < 3; ++c)
        for (uint32_t y = 0; y < shape.height; ++y)
          for (uint32_t x = 0; x < shape.width; ++x)
            ASSERT_EQ(at(after, shape, c, y, x),
                      at(before, shape, c, int64_t{y} + down, int64_t{x} + across))
                << down << ' ' << across;
    }
  }
}

}  // namespace
}  // namespace stoker::image
