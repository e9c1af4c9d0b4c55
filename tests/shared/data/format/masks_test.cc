// Masks: images with a class per pixel, which move with them.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/tar_writer.h"
#include "tests/shared/image/image_files.h"

namespace stoker::data::format {
namespace {

using image::testing::encode_png_file;
using image::testing::Pixels;
using testing::kTarEnd;
using testing::read_sample;
using testing::tar_member;

constexpr int kMaskClasses = 7;
constexpr int kLevelsPerClass = 30;
constexpr int kIgnored = 255;

class MasksTest : public testing::FolderFixture {
 protected:
  // Class of a pixel, from 1; black is outside of the image.
  static uint8_t class_at(uint32_t y, uint32_t x) {
    return static_cast<uint8_t>(1 + (x / 3 + y / 2 * 5) % (kMaskClasses - 1));
  }
  static Pixels mask_pixels(uint32_t height, uint32_t width) {
    Pixels mask{.height = height, .width = width, .channels = 1, .samples = {}};
    for (uint32_t y = 0; y < height; ++y)
      for (uint32_t x = 0; x < width; ++x) mask.samples.push_back(class_at(y, x));
    return mask;
  }
  // The levels of the image tell the class.
  static std::string image_of(const Pixels& mask) {
    Pixels image{.height = mask.height, .width = mask.width, .channels = 3, .samples = {}};
    for (const uint8_t each : mask.samples)
      image.samples.insert(image.samples.end(), 3, static_cast<uint8_t>(each * kLevelsPerClass));
    return encode_png_file(image);
  }
  static std::string palette_png(const Pixels& mask, int bit_depth) {
    std::vector<uint8_t> palette;  // colors must not matter
    for (int i = 0; i < 3 << bit_depth; ++i) palette.push_back(static_cast<uint8_t>(i * 71));
    return encode_png_file(
        mask, {.color_type = 3, .bit_depth = bit_depth, .palette = std::move(palette)});
  }
  config::DatasetConfig masked(const std::string& image, const std::string& mask,
                               config::Transforms transforms) const {
    write("data.tar", tar_member("a.png", image) + tar_member("a.mask.png", mask) + kTarEnd);
    config::DatasetConfig config;
    config.source = config::WebdatasetDataset{};
    path_in(config) = path("data.tar");
    fields_in(config).image = "png";
    fields_in(config).mask = "mask.png";
    record_in(config).num_classes = kMaskClasses;
    transforms_in(config) = std::move(transforms);
    return config;
  }
  static config::Transforms with_resize(config::Transform transform) {
    return {config::Resize{{24, 32}, config::Interpolation::kNearest}, std::move(transform)};
  }
  // Each pixel of the mask has the class of the level of the image. Returns the classes.
  static std::vector<uint8_t> expect_classes_of_levels(const Dataset& dataset,
                                                       const RandomKey& random_key) {
    const auto sample = read_sample(dataset, 0, random_key);
    EXPECT_TRUE(sample.status.ok()) << sample.status.to_string();
    const auto levels = sample.values<uint8_t>(0), classes = sample.values<uint8_t>(1);
    int wrong = 0;
    for (size_t i = 0; i < classes.size(); ++i)
      wrong += (classes[i] == kIgnored ? 0 : classes[i] * kLevelsPerClass) != levels[i];
    EXPECT_EQ(wrong, 0) << random_key.epoch;
    return classes;
  }
  void expect_mask_error(const std::string& mask, const std::string& what) const {
    const auto dataset =
        open(masked(image_of(mask_pixels(24, 32)), mask, {config::Resize{{24, 32}}}));
    ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
    const Status status = read_sample(**dataset, 0).status;
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), ::testing::HasSubstr(what));
  }
};

TEST_F(MasksTest, ReadsIndicesOfPalettesAndGrayLevels) {
  const Pixels bits{.height = 1, .width = 5, .channels = 1, .samples = {1, 0, 0, 1, 1}};
  const Pixels quarters{.height = 1, .width = 5, .channels = 1, .samples = {3, 0, 2, 1, 3}};
  const Pixels bytes{.height = 1, .width = 5, .channels = 1, .samples = {6, 0, 255, 1, 5}};
  const auto mask_of = [&](const std::string& mask) {
    const auto dataset = opened(masked(image_of(bits), mask, {config::Resize{{1, 5}}}));
    EXPECT_EQ(dataset->classes(), static_cast<uint64_t>(kMaskClasses));
    EXPECT_EQ(dataset->spec()[1],
              (TensorSpec{.name = "mask", .dtype = DType::kU8, .shape = {1, 5}}));
    return read_sample(*dataset, 0).values<uint8_t>(1);
  };
  EXPECT_EQ(mask_of(palette_png(bits, 1)), bits.samples);
  EXPECT_EQ(mask_of(palette_png(quarters, 2)), quarters.samples);
  EXPECT_EQ(mask_of(palette_png(quarters, 4)), quarters.samples);
  EXPECT_EQ(mask_of(palette_png(bytes, 8)), bytes.samples);
  EXPECT_EQ(mask_of(encode_png_file(bytes, {.color_type = 0})), bytes.samples);
}

// The class of each pixel is that of its level, whatever moves the image; what comes from outside is
// black and ignored.
TEST_F(MasksTest, MovesMasksWithImages) {
  const Pixels mask = mask_pixels(24, 32);
  const std::vector<config::Transforms> all{
      {config::RandomResizedCrop{
          .size = {17, 19}, .scale = {0.3, 0.9}, .interpolation = config::Interpolation::kNearest}},
      {config::Resize{{40}, config::Interpolation::kNearest}, config::CenterCrop{{30}}},
      with_resize(config::RandomCrop{.size = {24, 32}, .padding = 8}),
      with_resize(config::RandomHorizontalFlip{}),
      with_resize(config::RandomVerticalFlip{}),
      with_resize(config::RandomRotation{.degrees = {90}}),
      with_resize(config::RandomAffine{
          .degrees = {20}, .translate = {0.3, 0.3}, .scale = {0.5, 1.5}, .shear = {10}}),
      with_resize(
          config::RandomPerspective{.p = 1, .interpolation = config::Interpolation::kNearest})};
  for (const config::Transforms& transforms : all) {
    SCOPED_TRACE(config::to_text(transforms.back()));
    const auto dataset = opened(masked(image_of(mask), palette_png(mask, 8), transforms));
    int ignored = 0, moved = 0;
    for (uint64_t epoch = 0; epoch < 20; ++epoch) {
      const std::vector<uint8_t> classes =
          expect_classes_of_levels(*dataset, {.seed = 1, .epoch = epoch, .sample = 0});
      ignored += static_cast<int>(std::ranges::count(classes, kIgnored));
      moved += classes.size() == mask.samples.size() && classes != mask.samples;
    }
    const bool keeps_size = transforms.size() == 2 && transforms.back().index() > 2;
    EXPECT_EQ(moved > 0, keeps_size);
    const bool has_outside =
        !std::holds_alternative<config::RandomResizedCrop>(transforms.back()) &&
        !std::holds_alternative<config::CenterCrop>(transforms.back()) &&
        !std::holds_alternative<config::RandomHorizontalFlip>(transforms.back()) &&
        !std::holds_alternative<config::RandomVerticalFlip>(transforms.back());
    EXPECT_EQ(ignored > 0, has_outside);
  }
}

// Of a policy's operators, only the affine ones move the mask.
TEST_F(MasksTest, MovesMasksWithImagesInPolicies) {
  const Pixels mask = mask_pixels(24, 32);
  const auto dataset = opened(
      masked(image_of(mask), palette_png(mask, 8), with_resize(config::TrivialAugmentWide{})));
  int moved = 0;
  for (uint64_t epoch = 0; epoch < 100; ++epoch) {
    const RandomKey key{.seed = 1, .epoch = epoch, .sample = 0};
    if (dataset->info().maybe_files->describe_transforms(0, key).starts_with("affine"))
      moved += expect_classes_of_levels(*dataset, key) != mask.samples;
    else
      EXPECT_EQ(read_sample(*dataset, 0, key).values<uint8_t>(1), mask.samples) << epoch;
  }
  EXPECT_GT(moved, 20);  // 5 of 14 operators
  EXPECT_LT(moved, 50);
}

TEST_F(MasksTest, KeepsMasksWhereOnlyLevelsChange) {
  const Pixels mask = mask_pixels(24, 32);
  for (const config::Transform& transform : std::vector<config::Transform>{
           config::ColorJitter{.brightness = 0.9}, config::RandomErasing{.p = 1},
           config::RandomInvert{.p = 1}, config::GaussianBlur{.kernel_size = 5}}) {
    const auto dataset =
        opened(masked(image_of(mask), palette_png(mask, 8), with_resize(transform)));
    EXPECT_EQ(read_sample(*dataset, 0).values<uint8_t>(1), mask.samples)
        << config::to_text(transform);
  }
}

TEST_F(MasksTest, RejectsMasksThatDoNotFit) {
  Pixels wrong = mask_pixels(24, 32);
  wrong.samples[50] = kMaskClasses;
  expect_mask_error(palette_png(wrong, 8), "has class 7, not below num_classes (7)");
  expect_mask_error(palette_png(mask_pixels(24, 31), 8), "has 31x24 pixels, and its image 32x24");
  expect_mask_error(image_of(mask_pixels(24, 32)),
                    "must have a palette, or gray levels of at most 8 bits; it has 3 channels");
  expect_mask_error(image::testing::encode_jpeg(mask_pixels(24, 32)), "a mask must be a PNG");
}

}  // namespace
}  // namespace stoker::data::format
