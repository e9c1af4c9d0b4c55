#include "shared/data/transform/image_geometry.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "shared/data/counter_rng.h"

namespace stoker::data::transform {
namespace {

using image::CropBox;

CropResize make_crop_resize(const config::DatasetConfig& config) {
  const std::string name = "train";
  return *CropResize::of({.name = name, .config = config});
}
config::DatasetConfig with(config::Transforms transforms) {
  return {.source = config::ImageFolderDataset{
              .path = "data", .transforms = std::move(transforms), .cache = {}}};
}
config::DatasetConfig random_crop(std::vector<double> scale, std::vector<double> ratio) {
  return with({config::RandomResizedCrop{
      .size = {224, 224}, .scale = std::move(scale), .ratio = std::move(ratio)}});
}
config::DatasetConfig center_crop(std::vector<int64_t> resize, std::vector<int64_t> crop) {
  return with({config::Resize{std::move(resize)}, config::CenterCrop{std::move(crop)}});
}

void expect_box(const CropBox& box, const std::vector<double>& expected) {
  EXPECT_NEAR(box.left, expected[0], 1e-9);
  EXPECT_NEAR(box.top, expected[1], 1e-9);
  EXPECT_NEAR(box.width, expected[2], 1e-9);
  EXPECT_NEAR(box.height, expected[3], 1e-9);
}

TEST(CropResizeTest, UsesWholeImageWithResizeOnly) {
  const CropResize rule = make_crop_resize(with({config::Resize{{224, 200}}}));
  EXPECT_TRUE(rule.uses_full_image());
  EXPECT_EQ(rule.to_text(), "size=224x200");
  EXPECT_EQ(rule.height(), 224u);
  EXPECT_EQ(rule.width(), 200u);
  expect_box(rule.box(10, 20, {}), {0, 0, 20, 10});
}

TEST(CropResizeTest, PreservesOutputAspectRatioWithCenterCrop) {
  expect_box(make_crop_resize(center_crop({256}, {224, 224})).box(256, 512, {}),
             {144, 16, 224, 224});
  expect_box(make_crop_resize(center_crop({224}, {224})).box(512, 256, {}), {0, 128, 256, 256});
  expect_box(make_crop_resize(center_crop({200}, {100, 200})).box(300, 300, {}), {0, 75, 300, 150});
  expect_box(make_crop_resize(center_crop({448}, {224})).box(1, 1, {}), {0.25, 0.25, 0.5, 0.5});
  EXPECT_EQ(make_crop_resize(center_crop({256}, {200, 224})).height(), 200u);
  EXPECT_EQ(make_crop_resize(center_crop({256}, {224})).width(), 224u);
}

TEST(CropResizeTest, TakesFixedSizeCenterCropAfterResize) {
  expect_box(make_crop_resize(center_crop({256, 320}, {224, 240})).box(512, 640, {}),
             {80, 32, 480, 448});
  expect_box(make_crop_resize(center_crop({100, 100}, {50, 100})).box(10, 30, {}), {0, 2.5, 30, 5});
}

// Height and width of an image, sizes of resize and center_crop; then what transforms.v2 of torchvision 0.26 does:
// height and width after the resize, the first row and column of the crop. An odd difference is rounded to even.
TEST(CropResizeTest, TakesPixelsOfCenterCropOfTorchvision) {
  struct Row {
    uint32_t height, width;
    std::vector<int64_t> resize, crop;
    double resized_height, resized_width, top, left;
  };
  const std::vector<Row> rows{
      {256, 512, {256}, {224, 224}, 256, 512, 16, 144},
      {375, 500, {256}, {224, 224}, 256, 341, 16, 58},
      {500, 333, {256}, {224, 224}, 384, 256, 80, 16},
      {77, 1001, {256}, {224, 224}, 256, 3328, 16, 1552},
      {13, 7, {256}, {224, 224}, 475, 256, 126, 16},
      {3001, 4000, {235}, {224, 224}, 235, 313, 6, 44},
      {480, 641, {232}, {224, 224}, 232, 309, 4, 42},
      {10, 30, {100, 100}, {50, 100}, 100, 100, 25, 0},
      {100, 101, {99, 98}, {96, 95}, 99, 98, 2, 2},
      {37, 53, {21}, {16, 20}, 21, 30, 2, 5},
  };
  for (const Row& row : rows) {
    const double across = row.width / row.resized_width, down = row.height / row.resized_height;
    expect_box(make_crop_resize(center_crop(row.resize, row.crop)).box(row.height, row.width, {}),
               {row.left * across, row.top * down, static_cast<double>(row.crop[1]) * across,
                static_cast<double>(row.crop[0]) * down});
  }
}

// torchvision's RandomResizedCrop.get_params, line by line, with the same random numbers.
CropBox reference(uint32_t height, uint32_t width, const RandomKey& key) {
  CounterRng rng(key, RandomStream::kCrop);
  for (int i = 0; i < 10; ++i) {
    const double target_area = double(height) * width * rng.uniform(0.08, 1.0);
    const double aspect_ratio = std::exp(rng.uniform(std::log(0.75), std::log(4.0 / 3)));
    const long w = std::lrint(std::sqrt(target_area * aspect_ratio));
    const long h = std::lrint(std::sqrt(target_area / aspect_ratio));
    if (0 < w && w <= long{width} && 0 < h && h <= long{height}) {
      const double top = rng.below(static_cast<uint32_t>(height - h + 1));
      const double left = rng.below(static_cast<uint32_t>(width - w + 1));
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

TEST(CropResizeTest, MatchesTorchvisionRandomResizedCrop) {
  const CropResize rule = make_crop_resize(random_crop({0.08, 1.0}, {0.75, 4.0 / 3}));
  for (const auto& [height, width] :
       {std::pair{375u, 500u}, {500u, 375u}, {32u, 32u}, {1u, 1u}, {2u, 900u}, {900u, 2u}}) {
    for (uint64_t sample = 0; sample < 2000; ++sample) {
      const RandomKey key{.seed = 3, .epoch = 4, .sample = sample};
      const CropBox box = rule.box(height, width, key), expected = reference(height, width, key);
      ASSERT_EQ(std::tuple(box.left, box.top, box.width, box.height),
                std::tuple(expected.left, expected.top, expected.width, expected.height));
    }
  }
}

TEST(CropResizeTest, FallsBackToCenterWhenNoRandomCropFits) {
  // Ten times as wide as high, but the crop must have half of the area, which no allowed ratio
  // reaches.
  const CropResize rule = make_crop_resize(random_crop({0.5, 1.0}, {0.75, 1.25}));
  expect_box(rule.box(40, 400, {}), {175, 0, 50, 40});
  expect_box(rule.box(400, 30, {}), {0, 180, 30, 40});
}

TEST(CropResizeTest, DistributesCropsOverAreaRatioAndPosition) {
  const CropResize rule = make_crop_resize(random_crop({0.08, 1.0}, {0.75, 1.3333}));
  constexpr uint64_t kSamples = 20000;
  constexpr uint32_t kSide = 2000;
  double area = 0, ratio = 0, middle_across = 0, middle_down = 0, least = 1, most = 0;
  for (uint64_t sample = 0; sample < kSamples; ++sample) {
    const CropBox box = rule.box(kSide, kSide, {.seed = 1, .epoch = 2, .sample = sample});
    const double range = box.width * box.height / (double(kSide) * kSide);
    area += range / kSamples;
    ratio += std::log(box.width / box.height) / kSamples;
    middle_across += (box.left + box.width / 2) / kSide / kSamples;
    middle_down += (box.top + box.height / 2) / kSide / kSamples;
    least = std::min(least, range);
    most = std::max(most, range);
  }
  // Uniform from 0.08 to 1, but above 0.75 only a fraction log(area) / log(0.75) fits into the
  // square; the others are sampled again.
  EXPECT_NEAR(area, 0.478, 0.006);
  EXPECT_NEAR(ratio, 0, 0.005);
  EXPECT_NEAR(middle_across, 0.5, 0.003);
  EXPECT_NEAR(middle_down, 0.5, 0.003);
  EXPECT_NEAR(least, 0.08, 0.001);
  EXPECT_GT(most, 0.98);
}

TEST(CropResizeTest, FormatsDistinctTextPerParameters) {
  std::set<std::string> texts;
  for (const auto& config :
       {with({config::Resize{{224, 224}}}), with({config::Resize{{224, 200}}}),
        center_crop({256}, {224}), center_crop({250}, {224}), center_crop({256, 256}, {224}),
        center_crop({256}, {220}), center_crop({256}, {224, 220}),
        random_crop({0.08, 1}, {0.75, 1.3333}), random_crop({0.08, 0.9}, {0.75, 1.3333}),
        random_crop({0.1, 1}, {0.75, 1.3333}), random_crop({0.08, 1}, {0.8, 1.3333}),
        random_crop({0.08, 1}, {0.75, 1.3})})
    EXPECT_TRUE(texts.insert(make_crop_resize(config).to_text()).second);
}

TEST(CropResizeTest, RejectsInvalidParametersWithKey) {
  const std::string name = "train";
  const auto expect_wrong = [&](const config::DatasetConfig& config, const std::string& key) {
    const auto rule = CropResize::of({.name = name, .config = config});
    ASSERT_FALSE(rule.ok());
    EXPECT_EQ(rule.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(rule.status().message().find("data.train.transforms: " + key), 0u)
        << rule.status().message();
  };
  for (const auto& size :
       std::vector<std::vector<int64_t>>{{}, {0, 5}, {5, -1}, {1 << 20, 5}, {1, 2, 3}}) {
    expect_wrong(with({config::Resize{size}}), "resize.size");
    expect_wrong(with({config::RandomResizedCrop{size}}), "random_resized_crop.size");
    expect_wrong(center_crop({256}, size), "center_crop.size");
    expect_wrong(center_crop(size, {4, 4}), "resize.size");
  }
  expect_wrong(center_crop({100}, {101}), "center_crop.size must not be larger");
  expect_wrong(center_crop({100}, {50, 101}), "center_crop.size must not be larger");
  expect_wrong(center_crop({100, 200}, {101, 200}), "center_crop.size must not be larger");
  for (const auto& area : std::vector<std::vector<double>>{{}, {0.5}, {0, 1}, {0.9, 0.1}, {0.5, 2}})
    expect_wrong(random_crop(area, {0.75, 1.3}), "random_resized_crop.scale");
  for (const auto& ratio : std::vector<std::vector<double>>{{}, {0.5}, {0, 1}, {2, 1}, {1, 1e9}})
    expect_wrong(random_crop({0.08, 1}, ratio), "random_resized_crop.ratio");
}

TEST(CropResizeTest, RejectsTransformsWithoutOutputSize) {
  const std::string name = "train";
  const auto expect_wrong = [&](config::Transforms transforms, const std::string& what) {
    const config::DatasetConfig config = with(std::move(transforms));
    const auto rule = CropResize::of({.name = name, .config = config});
    ASSERT_FALSE(rule.ok());
    EXPECT_EQ(rule.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(rule.status().message().find("data.train.transforms: " + what), 0u)
        << rule.status().message();
  };
  expect_wrong({}, "encoded images need one of resize");
  expect_wrong({config::RandomHorizontalFlip{}}, "encoded images need one of resize");
  expect_wrong({config::Resize{{224}}}, "resize.size must be [height, width] unless");
  expect_wrong({config::CenterCrop{{224}}}, "center_crop requires a resize");
  expect_wrong({config::Resize{{224, 224}}, config::RandomResizedCrop{{224, 224}}},
               "random_resized_crop cannot be combined with resize");
}

}  // namespace
}  // namespace stoker::data::transform
