// Random transforms of images, applied through an opened dataset.
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "shared/data/counter_rng.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/data/transform/sample_operations.h"
#include "shared/image/image_operators.h"
#include "shared/image/pixel_transforms.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/image/image_files.h"
#include "tests/support/numpy_files.h"

namespace stoker::data::transform {
namespace {

constexpr uint64_t kRecords = 50;
constexpr image::ImageShape kShape{.channels = 3, .height = 32, .width = 32};

std::string to_string_view(const std::vector<std::byte>& planes) {
  return {reinterpret_cast<const char*>(planes.data()), planes.size()};
}

class TransformedDatasetTest : public testing::FolderFixture {
 protected:
  void SetUp() override {
    std::string records;
    for (uint64_t i = 0; i < kRecords; ++i) {
      records += static_cast<char>(i % 10);
      for (uint64_t k = 0; k < 3072; ++k) records += static_cast<char>(mix64(i * 4096 + k));
    }
    write("data/data_batch_1.bin", records);
  }
  config::DatasetConfig cifar() const {
    config::DatasetConfig config;
    config.source = config::CifarDataset{};
    path_in(config) = path("data");
    return config;
  }
  static std::vector<std::byte> read(const Dataset& dataset, const RandomKey& random_key) {
    std::vector<std::byte> input(dataset.spec()[0].bytes()), label(8);
    const std::vector<std::span<std::byte>> outputs{input, label};
    EXPECT_TRUE(dataset.read(random_key.sample, random_key, outputs).ok());
    EXPECT_EQ(std::to_integer<uint64_t>(label[0]), random_key.sample % 10);
    return input;
  }
};

TEST_F(TransformedDatasetTest, ReturnsUnchangedImagesWithoutTransforms) {
  const auto dataset = open(cifar());
  ASSERT_TRUE(dataset.ok());
  for (uint64_t i = 0; i < kRecords; ++i)
    EXPECT_EQ(read(**dataset, {.seed = i, .epoch = i, .sample = i}),
              read(**dataset, {.sample = i}));
}

// The settings applied step by step, with random numbers computed by the test.
std::vector<std::byte> expected_of(std::vector<std::byte> planes, const config::DatasetConfig& set,
                                   const RandomKey& key) {
  CounterRng position(key, RandomStream::kPad), coin(key, RandomStream::kFlip),
      jitter(key, RandomStream::kJitter);
  const auto& transforms = *set.transforms();
  const auto pad =
      static_cast<int32_t>(config::find_transform<config::RandomCrop>(transforms)->padding);
  const double flip = config::find_transform<config::RandomHorizontalFlip>(transforms)->p;
  const auto& strength = *config::find_transform<config::ColorJitter>(transforms);
  const int32_t down =
      static_cast<int32_t>(position.below(static_cast<uint32_t>(2 * pad + 1))) - pad;
  const int32_t across =
      static_cast<int32_t>(position.below(static_cast<uint32_t>(2 * pad + 1))) - pad;
  image::shift_with_fill(kShape, down, across, planes);
  if (coin.uniform() < flip) image::horizontal_flip(kShape, planes);
  std::vector<int> order{0, 1, 2, 3};
  for (uint32_t left = 4; left > 1; --left) std::swap(order[left - 1], order[jitter.below(left)]);
  std::vector<double> amount;
  for (const double each : {strength.brightness, strength.contrast, strength.saturation})
    amount.push_back(jitter.uniform(std::max(0.0, 1 - each), 1 + each));
  amount.push_back(jitter.uniform(-strength.hue, strength.hue));
  for (const int step : order) {
    if (step == 0) image::adjust_brightness(kShape, amount[0], planes);
    if (step == 1) image::adjust_contrast(kShape, amount[1], planes);
    if (step == 2) image::adjust_saturation(kShape, amount[2], planes);
    if (step == 3) image::adjust_hue(kShape, amount[3], planes);
  }
  return planes;
}

TEST_F(TransformedDatasetTest, AppliesTransformsInOrderWithOwnRandomNumbers) {
  auto config = cifar();
  set_transform(config, config::RandomCrop{.size = {32, 32}, .padding = 4});
  set_transform(config, config::RandomHorizontalFlip{.p = 0.5});
  set_transform(config, config::ColorJitter{0.4, 0.5, 0.6, 0.1});
  const auto plain = open(cifar(), "plain");
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  for (uint64_t i = 0; i < kRecords; ++i) {
    const RandomKey key{.seed = 7, .epoch = i / 10, .sample = i};
    EXPECT_EQ(read(**dataset, key), expected_of(read(**plain, key), config, key)) << i;
  }
}

TEST_F(TransformedDatasetTest, AppliesTransformsInOrderOfTheList) {
  const config::Transform invert = config::RandomInvert{.p = 1},
                          solarize = config::RandomSolarize{.threshold = 100, .p = 1};
  auto first = cifar(), last = cifar();
  transforms_in(first) = {invert, solarize};
  transforms_in(last) = {solarize, invert};
  const RandomKey key{.seed = 1, .epoch = 0, .sample = 3};
  const auto plain = read(**open(cifar(), "plain"), key);
  const auto inverted_first = read(**open(first, "first"), key);
  const auto inverted_last = read(**open(last, "last"), key);
  for (size_t i = 0; i < plain.size(); ++i) {
    const int level = std::to_integer<int>(plain[i]), inverted = 255 - level;
    ASSERT_EQ(std::to_integer<int>(inverted_first[i]), inverted >= 100 ? level : inverted);
    ASSERT_EQ(std::to_integer<int>(inverted_last[i]), level >= 100 ? level : inverted);
  }
  EXPECT_NE((*open(first, "first"))->fingerprint(), (*open(last, "last"))->fingerprint());
}

TEST_F(TransformedDatasetTest, AppliesOperatorsOfPolicies) {
  auto config = cifar();
  transforms_in(config) = {config::RandAugment{.magnitude = 20},
                           config::RandomErasing{.p = 1, .value = {9, 8, 7}}};
  const auto plain = open(cifar(), "plain");
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  for (uint64_t i = 0; i < kRecords; ++i) {
    const RandomKey key{.seed = 7, .epoch = 1, .sample = i};
    Operations operations;
    for (const config::Transform& each : *config.transforms())
      sample_operations(each, kShape, key, operations);
    std::vector<std::byte> planes = read(**plain, key);
    std::string text;
    for (const image::Operation& each : operations) {
      image::apply(each, kShape, planes);
      text += (text.empty() ? "" : " ") + image::to_text(each);
    }
    EXPECT_EQ(read(**dataset, key), planes) << text;
    EXPECT_EQ((*dataset)->info().maybe_files->describe_transforms(i, key), text);
  }
}

TEST_F(TransformedDatasetTest, DescribesAppliedTransforms) {
  auto config = cifar();
  set_transform(config, config::RandomCrop{.size = {32, 32}, .padding = 4});
  set_transform(config, config::RandomHorizontalFlip{.p = 0.5});
  const auto plain = open(cifar(), "plain");
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  for (uint64_t i = 0; i < kRecords; ++i) {
    const RandomKey key{.seed = 7, .epoch = 1, .sample = i};
    const std::string text = (*dataset)->info().maybe_files->describe_transforms(i, key);
    int down = 0, across = 0;
    ASSERT_EQ(std::sscanf(text.c_str(), "shift=%d,%d", &down, &across), 2) << text;
    std::vector<std::byte> planes = read(**plain, key);
    image::shift_with_fill(kShape, down, across, planes);
    if (text.ends_with(" flip")) image::horizontal_flip(kShape, planes);
    EXPECT_EQ(read(**dataset, key), planes) << text;
  }
  EXPECT_EQ((*plain)->info().maybe_files->describe_transforms(0, {}), "");
}

TEST_F(TransformedDatasetTest, DescribesColorJitterStepByStep) {
  auto config = cifar();
  set_transform(config, config::ColorJitter{0.4, 0, 0.6, 0});
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  const std::string text =
      (*dataset)->info().maybe_files->describe_transforms(3, {.seed = 7, .epoch = 1, .sample = 3});
  EXPECT_NE(text.find("brightness="), std::string::npos) << text;
  EXPECT_NE(text.find("saturation="), std::string::npos) << text;
  EXPECT_EQ(text.find("hue="), std::string::npos) << text;
}

TEST_F(TransformedDatasetTest, DependsOnlyOnSeedEpochAndSample) {
  auto config = cifar();
  set_transform(config, config::RandomCrop{.size = {32, 32}, .padding = 4});
  set_transform(config, config::ColorJitter{0.4, 0, 0, 0});
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  std::set<std::string> image_data;
  for (uint64_t seed = 0; seed < 4; ++seed)
    for (uint64_t epoch = 0; epoch < 4; ++epoch) {
      const RandomKey key{.seed = seed, .epoch = epoch, .sample = 3};
      EXPECT_EQ(read(**dataset, key), read(**dataset, key));
      image_data.insert(to_string_view(read(**dataset, key)));
    }
  EXPECT_EQ(image_data.size(), 16u);
}

TEST_F(TransformedDatasetTest, FlipsImagesWithGivenProbability) {
  const auto flipped = [&](double probability) {
    auto config = cifar();
    set_transform(config, config::RandomHorizontalFlip{.p = probability});
    const auto dataset = open(config);
    const auto plain = open(cifar(), "plain");
    uint64_t count = 0;
    for (uint64_t epoch = 0; epoch < 40; ++epoch)
      for (uint64_t i = 0; i < kRecords; ++i) {
        const RandomKey key{.seed = 1, .epoch = epoch, .sample = i};
        auto mirrored = read(**plain, key);
        const bool same = read(**dataset, key) == mirrored;
        image::horizontal_flip(kShape, mirrored);
        EXPECT_TRUE(same || read(**dataset, key) == mirrored);
        count += !same;
      }
    return static_cast<double>(count) / (40.0 * kRecords);
  };
  EXPECT_NEAR(flipped(0.5), 0.5, 0.04);
  EXPECT_NEAR(flipped(0.1), 0.1, 0.03);
  EXPECT_EQ(flipped(1), 1);
}

TEST_F(TransformedDatasetTest, ShiftsImagesUniformlyWithPadding) {
  // The position of a single white pixel shows the shift.
  std::string record(1, '\0');
  for (int k = 0; k < 3072; ++k) record += k % 1024 == 16 * 32 + 16 ? '\xff' : '\0';
  write("point/data_batch_1.bin", record);
  auto config = cifar();
  path_in(config) = path("point");
  set_transform(config, config::RandomCrop{.size = {32, 32}, .padding = 2});
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  std::map<size_t, int> positions;
  for (uint64_t epoch = 0; epoch < 5000; ++epoch) {
    const auto image = read(**dataset, {.seed = 1, .epoch = epoch, .sample = 0});
    const auto white = std::find(image.begin(), image.end(), std::byte{0xff});
    ++positions[static_cast<size_t>(white - image.begin())];
  }
  ASSERT_EQ(positions.size(), 25u);
  for (size_t y = 14; y <= 18; ++y)
    for (size_t x = 14; x <= 18; ++x) EXPECT_NEAR((positions[y * 32 + x]), 200, 60);
}

TEST_F(TransformedDatasetTest, ReturnsSameSamplesOnAllThreads) {
  auto config = cifar();
  set_transform(config, config::RandomCrop{.size = {32, 32}, .padding = 4});
  set_transform(config, config::RandomHorizontalFlip{.p = 0.5});
  set_transform(config, config::ColorJitter{0.4, 0.4, 0.4, 0.1});
  set_transform(config, config::AugMix{});
  set_transform(config, config::GaussianBlur{.kernel_size = 5});
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  std::vector<std::vector<std::byte>> expected;
  for (uint64_t i = 0; i < kRecords; ++i)
    expected.push_back(read(**dataset, {.epoch = 2, .sample = i}));
  std::vector<std::thread> threads;
  std::vector<int> wrong(3);
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 4 * kRecords; ++i) {
        const uint64_t sample = (i * 7 + t) % kRecords;
        wrong[t] += read(**dataset, {.epoch = 2, .sample = sample}) != expected[sample];
      }
    });
  for (auto& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

TEST_F(TransformedDatasetTest, ChangesFingerprintOnlyWithActiveTransforms) {
  std::set<std::string> prints{(*open(cifar()))->fingerprint()};
  auto none = cifar();
  set_transform(none, config::ColorJitter{});
  set_transform(none, config::RandomInvert{.p = 0});
  set_transform(none, config::RandAugment{.num_ops = 0});
  EXPECT_EQ((*open(none))->fingerprint(), *prints.begin());
  const auto add = [&](auto change) {
    auto config = cifar();
    change(config);
    const auto dataset = open(config);
    EXPECT_TRUE(prints.insert((*dataset)->fingerprint()).second);
  };
  add([](auto& config) {
    set_transform(config, config::RandomCrop{.size = {32, 32}, .padding = 4});
  });
  add([](auto& config) {
    set_transform(config, config::RandomCrop{.size = {32, 32}, .padding = 3});
  });
  add([](auto& config) { set_transform(config, config::RandomHorizontalFlip{.p = 0.5}); });
  add([](auto& config) { set_transform(config, config::ColorJitter{0, 0, 0, 0.1}); });
  add([](auto& config) { set_transform(config, config::RandAugment{}); });
  add([](auto& config) { set_transform(config, config::RandAugment{.magnitude = 8}); });
  add([](auto& config) { set_transform(config, config::RandomInvert{}); });
}

TEST_F(TransformedDatasetTest, OpensFromIndex) {
  auto config = cifar();
  set_transform(config, config::RandomHorizontalFlip{.p = 1});
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  const auto again =
      pipeline::open_indexed("train", config, index_dir(), (*dataset)->fingerprint());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(read(**again, {.sample = 1}), read(**dataset, {.sample = 1}));
  EXPECT_EQ((*again)->source(3).offset, (*dataset)->source(3).offset);
  EXPECT_EQ((*again)->class_names().size(), 10u);
  set_transform(config, config::RandomHorizontalFlip{.p = 0.5});
  EXPECT_EQ(pipeline::open_indexed("train", config, index_dir(), (*dataset)->fingerprint())
                .status()
                .code(),
            StatusCode::kMismatch);
}

TEST_F(TransformedDatasetTest, RejectsInvalidTransformsWithKey) {
  const auto expect_wrong = [&](const std::string& what, auto transform) {
    auto config = cifar();
    set_transform(config, std::move(transform));
    expect_error(config, StatusCode::kInvalidArgument, {"data.train.transforms: " + what});
  };
  const auto pad = [](std::vector<int64_t> size, int64_t padding) {
    return config::RandomCrop{.size = std::move(size), .padding = padding};
  };
  expect_wrong("random_crop.padding", pad({32, 32}, -1));
  expect_wrong("random_crop.padding is 32", pad({32, 32}, 32));
  expect_wrong("random_crop.size must be that of the images, [32, 32]", pad({32, 30}, 4));
  expect_wrong("random_crop.size", pad({}, 4));
  expect_wrong("random_horizontal_flip.p", config::RandomHorizontalFlip{.p = 1.1});
  expect_wrong("random_horizontal_flip.p", config::RandomHorizontalFlip{.p = std::nan("")});
  expect_wrong("color_jitter", config::ColorJitter{.hue = 0.6});
  expect_wrong("color_jitter", config::ColorJitter{.brightness = -0.1});
  expect_wrong("color_jitter", config::ColorJitter{.contrast = 101});
  expect_wrong("random_invert.p", config::RandomInvert{.p = -1});
  expect_wrong("gaussian_blur.kernel_size is 65; half of it must be less than the images' sides",
               config::GaussianBlur{.kernel_size = 65});
  expect_wrong("rand_augment.fill has 2 levels, but images have 3 channels",
               config::RandAugment{.fill = {1, 2}});
  expect_wrong("random_erasing.value has 2 levels", config::RandomErasing{.value = {1, 2}});
}

TEST_F(TransformedDatasetTest, RejectsResizeOfRawImages) {
  for (const config::Transform& transform :
       {config::Transform(config::Resize{{32, 32}}),
        config::Transform(config::CenterCrop{{24, 24}}),
        config::Transform(config::RandomResizedCrop{{24, 24}})}) {
    auto config = cifar();
    transforms_in(config) = {transform};
    expect_error(config, StatusCode::kInvalidArgument,
                 {"data.train.transforms: ", "encoded images"});
  }
}

TEST_F(TransformedDatasetTest, TreatsSingleSizeAsSquare) {
  auto config = cifar(), square = cifar();
  set_transform(config, config::RandomCrop{.size = {32, 32}, .padding = 4});
  set_transform(square, config::RandomCrop{.size = {32}, .padding = 4});
  const RandomKey key{.seed = 7, .epoch = 1, .sample = 3};
  EXPECT_EQ(read(**open(square), key), read(**open(config), key));
}

TEST_F(TransformedDatasetTest, RejectsTransformsOfVectors) {
  write("x.npy", test::npy("<f4", "(2, 3)", test::bytes_of<float>({1, 2, 3, 4, 5, 6})));
  write("y.npy", test::npy("|u1", "(2,)", "\1\2"));
  config::NumpyDataset numpy;
  numpy.path = path("x.npy");
  numpy.labels_path = path("y.npy");
  for (const config::Transform& transform :
       {config::Transform(config::RandomHorizontalFlip{}),
        config::Transform(config::Normalize{.mean = {0.5}, .std = {0.5}})}) {
    numpy.transforms = {transform};
    expect_error({.source = numpy}, StatusCode::kInvalidArgument,
                 {"data.train.transforms: need uint8 images", "F32"});
  }
}

// ---- Combined with crops

const config::Transforms kStretch = {config::Resize{{24, 24}}};
const config::Transforms kCenter = {config::Resize{{27}}, config::CenterCrop{{24, 24}}};
const config::Transforms kRandom = {config::RandomResizedCrop{{24, 24}}};

class CroppedImagesTest : public testing::FolderFixture {
 protected:
  void SetUp() override {
    for (uint32_t i = 0; i < 8; ++i)
      write("data/a/" + std::to_string(i),
            image::testing::encode_png_file(image::testing::pattern(40 + i, 60)));
  }
  config::DatasetConfig images(config::Transforms transforms) const {
    config::DatasetConfig config;
    config.source = config::ImageFolderDataset{};
    path_in(config) = path("data");
    glob_in(config) = "**/*";
    transforms_in(config) = std::move(transforms);
    return config;
  }
  static std::vector<std::byte> read(const Dataset& dataset, const RandomKey& random_key) {
    std::vector<std::byte> input(dataset.spec()[0].bytes()), label(8);
    const std::vector<std::span<std::byte>> outputs{input, label};
    EXPECT_TRUE(dataset.read(random_key.sample, random_key, outputs).ok());
    return input;
  }
};

TEST_F(CroppedImagesTest, ChangesRandomCropButNotCenterCropPerEpoch) {
  const auto random = open(images(kRandom), "random");
  const auto center = open(images(kCenter), "center");
  const auto stretched = open(images(kStretch), "stretched");
  ASSERT_TRUE(random.ok() && center.ok() && stretched.ok());
  std::set<std::string> image_data;
  for (uint64_t epoch = 0; epoch < 8; ++epoch) {
    image_data.insert(to_string_view(read(**random, {.seed = 1, .epoch = epoch, .sample = 2})));
    EXPECT_EQ(read(**center, {.seed = 1, .epoch = epoch, .sample = 2}),
              read(**center, {.sample = 2}));
  }
  EXPECT_EQ(image_data.size(), 8u);
  EXPECT_NE(read(**center, {.sample = 2}), read(**stretched, {.sample = 2}));
}

TEST_F(CroppedImagesTest, SelectsSameCropRegionWithFlip) {
  auto config = images(kRandom);
  const auto plain = open(config, "plain");
  set_transform(config, config::RandomHorizontalFlip{.p = 1});
  const auto flipped = open(config, "flipped");
  ASSERT_TRUE(plain.ok() && flipped.ok());
  for (uint64_t sample = 0; sample < 8; ++sample) {
    const RandomKey key{.seed = 2, .epoch = 3, .sample = sample};
    auto mirrored = read(**plain, key);
    image::horizontal_flip({.channels = 3, .height = 24, .width = 24}, mirrored);
    EXPECT_EQ(read(**flipped, key), mirrored);
  }
}

TEST_F(CroppedImagesTest, ChangesFingerprintWithCropMode) {
  std::set<std::string> prints;
  for (const auto& rule : {kStretch, kCenter, kRandom})
    EXPECT_TRUE(prints.insert((*open(images(rule)))->fingerprint()).second);
}

// A mask that stays where it is does not belong to an image that moves.
TEST_F(TransformedDatasetTest, RejectsMovedImagesWithImagesAsTargets) {
  write("x.npy", test::npy("|u1", "(2, 8, 8)", std::string(128, 'x')));
  write("mask.npy", test::npy("<f4", "(2, 8, 8)", std::string(512, '\0')));
  write("value.npy", test::npy("<f4", "(2, 5)", std::string(40, '\0')));
  write("channels_last.npy", test::npy("<f4", "(2, 8, 8, 2)", std::string(1024, '\0')));
  config::NumpyDataset numpy;
  numpy.path = path("x.npy");
  numpy.labels_path = path("mask.npy");
  config::DatasetConfig config;
  config.source = numpy;
  EXPECT_TRUE(open(config).ok());
  for (const config::Transform& transform : std::vector<config::Transform>{
           config::RandomHorizontalFlip{}, config::RandomCrop{.size = {8, 8}, .padding = 2},
           config::RandomAffine{.degrees = {1}}, config::RandAugment{}}) {
    transforms_in(config) = {transform};
    expect_error(config, StatusCode::kInvalidArgument,
                 {"data.train.transforms", "moves the input only", "8 x 8"});
  }
  source_in<config::NumpyDataset>(config).labels_path = path("channels_last.npy");
  expect_error(config, StatusCode::kInvalidArgument, {"moves the input only", "8 x 8"});
  transforms_in(config) = {config::ColorJitter{.brightness = 0.5}};
  EXPECT_TRUE(open(config).ok());
  source_in<config::NumpyDataset>(config).labels_path = path("value.npy");
  transforms_in(config) = {config::RandomHorizontalFlip{}};
  EXPECT_TRUE(open(config).ok());
}

// Of as many numbers as the image has pixels: a teacher's features, which do not depend on a flip.
TEST_F(TransformedDatasetTest, WarnsAboutVectorsThatMayBeImages) {
  write("x.npy", test::npy("|u1", "(2, 8, 8)", std::string(128, 'x')));
  write("vector.npy", test::npy("<f4", "(2, 64)", std::string(512, '\0')));
  write("other.npy", test::npy("<f4", "(2, 65)", std::string(520, '\0')));
  config::DatasetConfig config;
  config.source = config::NumpyDataset{.path = path("x.npy")};
  transforms_in(config) = {config::RandomHorizontalFlip{}};
  const auto log_of = [&](const std::string& target) {
    source_in<config::NumpyDataset>(config).labels_path = path(target);
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(open(config).ok());
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(log_of("vector.npy"),
              ::testing::HasSubstr(
                  "key=data.train.transforms reason=\"random_horizontal_flip moves the input "
                  "only, and the target is 64 numbers; remove it if they are an image of 8 x 8"));
  EXPECT_THAT(log_of("other.npy"), ::testing::Not(::testing::HasSubstr("contradictory")));
}

}  // namespace
}  // namespace stoker::data::transform
