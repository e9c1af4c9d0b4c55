#include "shared/dataset/crop_rule.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "shared/dataset/draws.h"

namespace stoker::dataset {
namespace {

using image::Box;

constexpr image::PictureShape kSquare{.channels = 3, .height = 224, .width = 224};

CropRule rule_of(const config::DatasetConfig& config) {
  const std::string name = "train";
  return *CropRule::of({.name = name, .config = config});
}
config::DatasetConfig random_crop(std::vector<double> area, std::vector<double> ratio) {
  config::DatasetConfig config;
  config.fit = "random_crop";
  config.crop_area = std::move(area);
  config.crop_ratio = std::move(ratio);
  return config;
}
config::DatasetConfig center_crop(double part) {
  config::DatasetConfig config;
  config.fit = "center_crop";
  config.crop_part = part;
  return config;
}

void expect_box(const Box& box, const std::vector<double>& expected) {
  EXPECT_NEAR(box.left, expected[0], 1e-9);
  EXPECT_NEAR(box.top, expected[1], 1e-9);
  EXPECT_NEAR(box.width, expected[2], 1e-9);
  EXPECT_NEAR(box.height, expected[3], 1e-9);
}

TEST(CropRule, StretchTakesAllAndSaysNothing) {
  const CropRule rule = rule_of({});
  EXPECT_TRUE(rule.takes_all());
  EXPECT_EQ(rule.to_text(), "");
  expect_box(rule.box(10, 20, kSquare, {}), {0, 0, 20, 10});
}

TEST(CropRule, CenterCropKeepsTheShapeOfTheOutput) {
  expect_box(rule_of(center_crop(0.875)).box(256, 512, kSquare, {}), {144, 16, 224, 224});
  expect_box(rule_of(center_crop(1)).box(512, 256, kSquare, {}), {0, 128, 256, 256});
  const image::PictureShape wide{.channels = 3, .height = 100, .width = 200};
  expect_box(rule_of(center_crop(1)).box(300, 300, wide, {}), {0, 75, 300, 150});
  expect_box(rule_of(center_crop(0.5)).box(1, 1, kSquare, {}), {0.25, 0.25, 0.5, 0.5});
}

// torchvision's RandomResizedCrop.get_params, line by line, with the same numbers drawn.
Box reference(uint32_t height, uint32_t width, const DrawKey& key) {
  Draws draws(key, Purpose::kCrop);
  for (int i = 0; i < 10; ++i) {
    const double target_area = double(height) * width * draws.uniform(0.08, 1.0);
    const double aspect_ratio = std::exp(draws.uniform(std::log(0.75), std::log(4.0 / 3)));
    const long w = std::lrint(std::sqrt(target_area * aspect_ratio));
    const long h = std::lrint(std::sqrt(target_area / aspect_ratio));
    if (0 < w && w <= long{width} && 0 < h && h <= long{height}) {
      const double top = draws.below(static_cast<uint32_t>(height - h + 1));
      const double left = draws.below(static_cast<uint32_t>(width - w + 1));
      return {.left = left, .top = top, .width = double(w), .height = double(h)};
    }
  }
  const double in_ratio = double(width) / height;
  long w = width, h = height;
  if (in_ratio < 0.75) h = std::lrint(double(w) / 0.75);
  if (in_ratio > 4.0 / 3) w = std::lrint(double(h) * (4.0 / 3));
  return {.left = double((width - w) / 2),
          .top = double((height - h) / 2),
          .width = double(w),
          .height = double(h)};
}

TEST(CropRule, RandomCropIsTorchvisions) {
  const CropRule rule = rule_of(random_crop({0.08, 1.0}, {0.75, 4.0 / 3}));
  for (const auto& [height, width] :
       {std::pair{375u, 500u}, {500u, 375u}, {32u, 32u}, {1u, 1u}, {2u, 900u}, {900u, 2u}}) {
    for (uint64_t sample = 0; sample < 2000; ++sample) {
      const DrawKey key{.seed = 3, .epoch = 4, .sample = sample};
      const Box box = rule.box(height, width, kSquare, key),
                expected = reference(height, width, key);
      ASSERT_EQ(std::tuple(box.left, box.top, box.width, box.height),
                std::tuple(expected.left, expected.top, expected.width, expected.height));
    }
  }
}

TEST(CropRule, WhereNoRandomPartFitsTheWidestInTheMiddleIsTaken) {
  // Ten times as wide as high, and the part must be half the picture: nothing of that ratio is.
  const CropRule rule = rule_of(random_crop({0.5, 1.0}, {0.75, 1.25}));
  expect_box(rule.box(40, 400, kSquare, {}), {175, 0, 50, 40});
  expect_box(rule.box(400, 30, kSquare, {}), {0, 180, 30, 40});
}

TEST(CropRule, RandomPartsAreSpreadOverAreaRatioAndPlace) {
  const CropRule rule = rule_of(random_crop({0.08, 1.0}, {0.75, 1.3333}));
  constexpr uint64_t kSamples = 20000;
  constexpr uint32_t kSide = 2000;
  double area = 0, ratio = 0, middle_across = 0, middle_down = 0, least = 1, most = 0;
  for (uint64_t sample = 0; sample < kSamples; ++sample) {
    const Box box = rule.box(kSide, kSide, kSquare, {.seed = 1, .epoch = 2, .sample = sample});
    const double part = box.width * box.height / (double(kSide) * kSide);
    area += part / kSamples;
    ratio += std::log(box.width / box.height) / kSamples;
    middle_across += (box.left + box.width / 2) / kSide / kSamples;
    middle_down += (box.top + box.height / 2) / kSide / kSamples;
    least = std::min(least, part);
    most = std::max(most, part);
  }
  // Even from 0.08 to 1, but above 0.75 only a share of log(area) / log(0.75) fits into the square,
  // and what does not is drawn anew.
  EXPECT_NEAR(area, 0.478, 0.006);
  EXPECT_NEAR(ratio, 0, 0.005);
  EXPECT_NEAR(middle_across, 0.5, 0.003);
  EXPECT_NEAR(middle_down, 0.5, 0.003);
  EXPECT_NEAR(least, 0.08, 0.001);
  EXPECT_GT(most, 0.98);
}

TEST(CropRule, TextTellsRulesApart) {
  std::set<std::string> texts;
  for (const auto& config :
       {config::DatasetConfig(), center_crop(0.875), center_crop(0.9),
        random_crop({0.08, 1}, {0.75, 1.3333}), random_crop({0.08, 0.9}, {0.75, 1.3333}),
        random_crop({0.1, 1}, {0.75, 1.3333}), random_crop({0.08, 1}, {0.8, 1.3333}),
        random_crop({0.08, 1}, {0.75, 1.3})})
    EXPECT_TRUE(texts.insert(rule_of(config).to_text()).second);
}

TEST(CropRule, WrongNumbersAreNamed) {
  const std::string name = "train";
  const auto expect_wrong = [&](const config::DatasetConfig& config, const std::string& key) {
    const auto rule = CropRule::of({.name = name, .config = config});
    ASSERT_FALSE(rule.ok());
    EXPECT_EQ(rule.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(rule.status().message().find("data.train." + key + ":"), 0u);
  };
  config::DatasetConfig unknown;
  unknown.fit = "crop";
  expect_wrong(unknown, "fit");
  for (const double part : {0.0, -1.0, 1.1, std::nan("")})
    expect_wrong(center_crop(part), "crop_part");
  for (const auto& area : std::vector<std::vector<double>>{{}, {0.5}, {0, 1}, {0.9, 0.1}, {0.5, 2}})
    expect_wrong(random_crop(area, {0.75, 1.3}), "crop_area");
  for (const auto& ratio : std::vector<std::vector<double>>{{}, {0.5}, {0, 1}, {2, 1}, {1, 1e9}})
    expect_wrong(random_crop({0.08, 1}, ratio), "crop_ratio");
}

}  // namespace
}  // namespace stoker::dataset
