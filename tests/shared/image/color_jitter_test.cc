#include "shared/image/color_jitter.h"

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
using Colour = std::array<int, 3>;

constexpr PictureShape kColours{.channels = 3, .height = 61, .width = 67};
constexpr PictureShape kGrey{.channels = 1, .height = 61, .width = 67};

Planes random_planes(const PictureShape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  Planes planes(shape.bytes());
  // Black, white and grey pixels too: there the hue is a division by nothing.
  for (std::byte& value : planes) {
    const auto level = static_cast<uint32_t>(random());
    value = static_cast<std::byte>(random() % 3 == 0 ? level % 3 * 127 : level % 256);
  }
  return planes;
}

Colour colour_at(const Planes& planes, size_t pixel) {
  const size_t pixels = planes.size() / 3;
  return {std::to_integer<int>(planes[pixel]), std::to_integer<int>(planes[pixels + pixel]),
          std::to_integer<int>(planes[2 * pixels + pixel])};
}

int cut(float level) { return static_cast<int>(std::clamp(level, 0.0f, 255.0f)); }
int grey(const Colour& c) { return cut(0.2989f * c[0] + 0.587f * c[1] + 0.114f * c[2]); }

// torchvision's _blend for one value.
int blended(double factor, float value, float other) {
  return cut(static_cast<float>(factor) * value + static_cast<float>(1 - factor) * other);
}

// By the textbook: to hue, saturation and value, and back through the six cases.
Colour turned(const Colour& colour, double turn) {
  const double r = colour[0] / 255.0, g = colour[1] / 255.0, b = colour[2] / 255.0;
  const double most = std::max({r, g, b}), spread = most - std::min({r, g, b});
  double hue = 0;
  if (spread > 0) {
    if (most == r)
      hue = std::fmod((g - b) / spread + 6, 6) / 6;
    else if (most == g)
      hue = ((b - r) / spread + 2) / 6;
    else
      hue = ((r - g) / spread + 4) / 6;
  }
  const double saturation = most > 0 ? spread / most : 0;
  hue = hue + turn - std::floor(hue + turn);
  const double sixth = std::floor(hue * 6), f = hue * 6 - sixth;
  const double p = most * (1 - saturation), q = most * (1 - f * saturation),
               t = most * (1 - (1 - f) * saturation);
  const std::array<std::array<double, 3>, 6> cases{
      {{most, t, p}, {q, most, p}, {p, most, t}, {p, q, most}, {t, p, most}, {most, p, q}}};
  Colour result;
  for (size_t i = 0; i < 3; ++i)
    result[i] = static_cast<int>(cases[static_cast<size_t>(sixth) % 6][i] * 255.999);
  return result;
}

TEST(ColorJitter, BrightnessBlendsWithBlack) {
  for (const double factor : {0.0, 0.3, 1.0, 1.7}) {
    const Planes before = random_planes(kColours, 1);
    Planes after = before;
    change_brightness(kColours, factor, after);
    for (size_t i = 0; i < after.size(); ++i)
      ASSERT_EQ(std::to_integer<int>(after[i]),
                blended(factor, float(std::to_integer<uint8_t>(before[i])), 0));
  }
}

TEST(ColorJitter, ContrastBlendsWithTheMeanGrey) {
  for (const double factor : {0.0, 0.3, 1.0, 1.7}) {
    const Planes before = random_planes(kColours, 2);
    double sum = 0;
    const size_t pixels = before.size() / 3;
    for (size_t i = 0; i < pixels; ++i) sum += grey(colour_at(before, i));
    Planes after = before;
    change_contrast(kColours, factor, after);
    for (size_t i = 0; i < after.size(); ++i)
      ASSERT_EQ(std::to_integer<int>(after[i]),
                blended(factor, float(std::to_integer<uint8_t>(before[i])),
                        static_cast<float>(sum / static_cast<double>(pixels))));
  }
}

TEST(ColorJitter, SaturationBlendsWithTheGreyPicture) {
  for (const double factor : {0.0, 0.3, 1.0, 1.7}) {
    const Planes before = random_planes(kColours, 3);
    Planes after = before;
    change_saturation(kColours, factor, after);
    for (size_t i = 0; i < before.size() / 3; ++i) {
      const Colour was = colour_at(before, i), is = colour_at(after, i);
      for (size_t c = 0; c < 3; ++c)
        ASSERT_EQ(is[c],
                  blended(factor, static_cast<float>(was[c]), static_cast<float>(grey(was))));
    }
  }
}

TEST(ColorJitter, HueTurnsTheCircleOfColours) {
  for (const double turn : {-0.5, -0.13, 0.0, 0.07, 1.0 / 3, 0.5}) {
    const Planes before = random_planes(kColours, 4);
    Planes after = before;
    change_hue(kColours, turn, after);
    for (size_t i = 0; i < before.size() / 3; ++i) {
      const Colour expected = turned(colour_at(before, i), turn), is = colour_at(after, i);
      // Cut off after float arithmetic: a hair below a whole level is a level less.
      for (size_t c = 0; c < 3; ++c) ASSERT_NEAR(is[c], expected[c], 1) << i;
    }
  }
}

TEST(ColorJitter, AThirdOfTheCircleMakesRedGreen) {
  const PictureShape one{.channels = 3, .height = 1, .width = 1};
  Planes red{std::byte{255}, std::byte{0}, std::byte{0}};
  change_hue(one, 1.0 / 3, red);
  EXPECT_EQ(colour_at(red, 0), (Colour{0, 255, 0}));
}

TEST(ColorJitter, FactorOneAndNoTurnChangeNothing) {
  const Planes before = random_planes(kColours, 5);
  Planes after = before;
  change_brightness(kColours, 1, after);
  change_contrast(kColours, 1, after);
  change_hue(kColours, 0, after);
  EXPECT_EQ(after, before);
}

TEST(ColorJitter, AGreyPictureHasNeitherSaturationNorHue) {
  const Planes before = random_planes(kGrey, 6);
  Planes after = before;
  change_saturation(kGrey, 0.2, after);
  change_hue(kGrey, 0.4, after);
  EXPECT_EQ(after, before);
  change_contrast(kGrey, 0, after);
  EXPECT_EQ(std::count(after.begin(), after.end(), after[0]), static_cast<int64_t>(after.size()));
}

}  // namespace
}  // namespace stoker::image
