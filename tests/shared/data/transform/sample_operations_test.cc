// The random choices of single transforms: their ranges and frequencies, from torchvision's make_params.
#include "shared/data/transform/sample_operations.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "shared/data/counter_rng.h"

namespace stoker::data::transform {
namespace {

constexpr image::ImageShape kSampledShape{.channels = 3, .height = 20, .width = 30};
constexpr uint64_t kSamples = 4000;

std::vector<image::Operation> draws_of(const config::Transform& transform) {
  std::vector<image::Operation> all;
  for (uint64_t sample = 0; sample < kSamples; ++sample)
    sample_operations(transform, kSampledShape, {.seed = 5, .epoch = 2, .sample = sample}, all);
  return all;
}

// The numbers at one place are uniform in [from, to].
void expect_uniform(const std::vector<image::Operation>& draws, size_t place, double from,
                    double to) {
  ASSERT_EQ(draws.size(), kSamples);
  std::vector<int> tenths(10);
  for (const image::Operation& draw : draws) {
    const double number = draw.numbers.at(place);
    ASSERT_GE(number, from);
    ASSERT_LE(number, to);
    ++tenths[std::min<size_t>(static_cast<size_t>((number - from) / (to - from) * 10), 9)];
  }
  for (const int count : tenths) EXPECT_NEAR(count, kSamples / 10.0, 120) << place;
}

TEST(SampleOperationsTest, AppliesSimpleTransformsWithTheirProbability) {
  const std::vector<std::pair<config::Transform, image::Operator>> transforms{
      {config::RandomHorizontalFlip{0.3}, image::Operator::kHorizontalFlip},
      {config::RandomVerticalFlip{0.3}, image::Operator::kVerticalFlip},
      {config::RandomGrayscale{0.3}, image::Operator::kGrayscale},
      {config::RandomInvert{0.3}, image::Operator::kInvert},
      {config::RandomPosterize{.bits = 3, .p = 0.3}, image::Operator::kPosterize},
      {config::RandomSolarize{.threshold = 3, .p = 0.3}, image::Operator::kSolarize},
      {config::RandomAdjustSharpness{.sharpness_factor = 3, .p = 0.3}, image::Operator::kSharpness},
      {config::RandomAutocontrast{0.3}, image::Operator::kAutocontrast},
      {config::RandomEqualize{0.3}, image::Operator::kEqualize},
      {config::RandomPerspective{.p = 0.3}, image::Operator::kPerspective},
      {config::RandomErasing{.p = 0.3}, image::Operator::kErase}};
  for (const auto& [transform, name] : transforms) {
    SCOPED_TRACE(config::name_of(transform));
    const std::vector<image::Operation> draws = draws_of(transform);
    EXPECT_NEAR(static_cast<double>(draws.size()), 0.3 * kSamples, 150);
    for (const image::Operation& draw : draws) EXPECT_EQ(draw.name, name);
    const bool has_number = name == image::Operator::kPosterize ||
                            name == image::Operator::kSolarize ||
                            name == image::Operator::kSharpness;
    if (has_number) {
      EXPECT_EQ(draws.front().numbers[0], 3);
    }
  }
}

TEST(SampleOperationsTest, DrawsAnglesOfRotationsUniformly) {
  expect_uniform(draws_of(config::RandomRotation{.degrees = {10, 30}}), 0, -30, -10);
  expect_uniform(draws_of(config::RandomRotation{.degrees = {15}}), 0, -15, 15);
}

TEST(SampleOperationsTest, DrawsParametersOfAffineTransformsUniformly) {
  const auto draws =
      draws_of(config::RandomAffine{.degrees = {-5, 10},
                                    .translate = {0.5, 0.1},
                                    .scale = {0.5, 2},
                                    .shear = {-3, 4, 5, 6},
                                    .interpolation = config::Interpolation::kBilinear,
                                    .fill = {1, 2, 3}});
  expect_uniform(draws, 0, -5, 10);
  expect_uniform(draws, 3, 0.5, 2);
  expect_uniform(draws, 4, -3, 4);
  expect_uniform(draws, 5, 5, 6);
  std::map<double, int> across, down;
  for (const image::Operation& draw : draws) {
    ++across[draw.numbers[1]];
    ++down[draw.numbers[2]];
    EXPECT_EQ(draw.numbers[6], 0);
    EXPECT_EQ(draw.interpolation, image::Interpolation::kBilinear);
    EXPECT_EQ(draw.fill, (image::Fill{{1, 2, 3}}));
  }
  EXPECT_EQ(across.begin()->first, -15);  // whole pixels up to half of the width
  EXPECT_EQ(across.rbegin()->first, 15);
  EXPECT_EQ(across.size(), 31u);
  EXPECT_EQ(down.begin()->first, -2);  // a tenth of the height
  EXPECT_EQ(down.size(), 5u);
}

TEST(SampleOperationsTest, DrawsSigmaOfBlursUniformly) {
  expect_uniform(draws_of(config::GaussianBlur{.kernel_size = 3, .sigma = {0.1, 2}}), 1, 0.1, 2);
}

// The top left corner moves inward by a whole number of pixels, up to distortion_scale times half of
// the side: 0.4 * 15 and 0.4 * 10.
TEST(SampleOperationsTest, MovesCornersOfPerspectives) {
  std::map<std::pair<int, int>, int> positions;
  for (const image::Operation& draw :
       draws_of(config::RandomPerspective{.distortion_scale = 0.4, .p = 1})) {
    // The pixel that comes from (0, 0).
    const auto& [a, b, c, d, e, f, g, h] = draw.numbers;
    const double x = (b * f - c * e) / (a * e - b * d), y = (c * d - a * f) / (a * e - b * d);
    EXPECT_NEAR(x, std::nearbyint(x), 1e-3);
    EXPECT_NEAR(y, std::nearbyint(y), 1e-3);
    ++positions[{static_cast<int>(std::nearbyint(x)), static_cast<int>(std::nearbyint(y))}];
  }
  EXPECT_EQ(positions.size(), 35u);
  EXPECT_EQ(positions.begin()->first, (std::pair{0, 0}));
  EXPECT_EQ(positions.rbegin()->first, (std::pair{6, 4}));
  for (const auto& [position, count] : positions) EXPECT_NEAR(count, kSamples / 35.0, 60);
}

TEST(SampleOperationsTest, KeepsImagesOfOneRowInPerspectives) {
  std::vector<image::Operation> draws;
  for (uint64_t sample = 0; sample < 50; ++sample)
    sample_operations(config::RandomPerspective{.p = 1}, {.channels = 3, .height = 1, .width = 64},
                      {.seed = 5, .epoch = 2, .sample = sample}, draws);
  EXPECT_TRUE(draws.empty());
}

TEST(SampleOperationsTest, ErasesRectanglesOfArea) {
  std::set<std::pair<double, double>> corners;
  double largest = 0, smallest = 1;
  for (const image::Operation& draw : draws_of(
           config::RandomErasing{.p = 1, .scale = {0.1, 0.3}, .ratio = {0.5, 2}, .value = {7}})) {
    const auto [top, left, height, width] =
        std::tuple(draw.numbers[0], draw.numbers[1], draw.numbers[2], draw.numbers[3]);
    EXPECT_LE(top + height, 20);
    EXPECT_LE(left + width, 30);
    // Rounded sides of at least sqrt(600 * 0.1 / 2) = 5 pixels.
    EXPECT_NEAR(std::clamp(height / width, 0.5, 2.0), height / width, 0.25);
    largest = std::max(largest, height * width / 600);
    smallest = std::min(smallest, height * width / 600);
    corners.insert({top, left});
    EXPECT_EQ(draw.fill, (image::Fill{{7, 7, 7}}));
  }
  EXPECT_NEAR(largest, 0.3, 0.03);
  EXPECT_NEAR(smallest, 0.1, 0.02);
  EXPECT_GT(corners.size(), 200u);
}

// A new transform must not change what the others do.
TEST(SampleOperationsTest, DrawsOwnRandomNumbersForEachTransform) {
  const RandomKey key{.seed = 1, .epoch = 2, .sample = 3};
  const auto first_of = [&key](RandomStream purpose) { return CounterRng(key, purpose).next(); };
  std::set<uint64_t> numbers;
  for (auto stream = static_cast<uint64_t>(RandomStream::kCrop);
       stream <= static_cast<uint64_t>(RandomStream::kErasing); ++stream)
    numbers.insert(first_of(static_cast<RandomStream>(stream)));
  EXPECT_EQ(numbers.size(), static_cast<size_t>(RandomStream::kErasing));
}

}  // namespace
}  // namespace stoker::data::transform
