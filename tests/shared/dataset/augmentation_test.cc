// Pictures that are changed at random, through data sets as they are opened.
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "shared/dataset/draws.h"
#include "shared/image/color_jitter.h"
#include "shared/image/mirror.h"
#include "shared/image/shift.h"
#include "tests/shared/dataset/folder_fixture.h"
#include "tests/shared/image/picture_files.h"

namespace stoker::dataset {
namespace {

constexpr uint64_t kRecords = 50;
constexpr image::PictureShape kShape{.channels = 3, .height = 32, .width = 32};

std::string text_of(const std::vector<std::byte>& planes) {
  return {reinterpret_cast<const char*>(planes.data()), planes.size()};
}

class Augmented : public testing::FolderFixture {
 protected:
  void SetUp() override {
    FolderFixture::SetUp();
    std::string records;
    for (uint64_t i = 0; i < kRecords; ++i) {
      records += static_cast<char>(i % 10);
      for (uint64_t k = 0; k < 3072; ++k) records += static_cast<char>(mix64(i * 4096 + k));
    }
    write("data/data_batch_1.bin", records);
  }
  config::DatasetConfig cifar() const {
    config::DatasetConfig config;
    config.kind = config::DatasetKind::kCifar;
    config.path = path("data");
    config.classes = 10;
    return config;
  }
  static std::vector<std::byte> read(const Dataset& dataset, const DrawKey& draw) {
    std::vector<std::byte> input(dataset.spec()[0].bytes()), label(8);
    const std::vector<std::span<std::byte>> outputs{input, label};
    EXPECT_TRUE(dataset.read(draw.sample, draw, outputs).ok());
    EXPECT_EQ(std::to_integer<uint64_t>(label[0]), draw.sample % 10);
    return input;
  }
};

TEST_F(Augmented, NothingIsDoneWhereNothingIsSet) {
  const auto dataset = open(cifar());
  ASSERT_TRUE(dataset.ok());
  for (uint64_t i = 0; i < kRecords; ++i)
    EXPECT_EQ(read(**dataset, {.seed = i, .epoch = i, .sample = i}),
              read(**dataset, {.sample = i}));
}

// What the settings say, step by step, with draws of the test's own.
std::vector<std::byte> expected_of(std::vector<std::byte> planes, const config::DatasetConfig& set,
                                   const DrawKey& key) {
  Draws place(key, Purpose::kPad), coin(key, Purpose::kFlip), jitter(key, Purpose::kJitter);
  const auto pad = static_cast<int32_t>(set.pad);
  const int32_t down = static_cast<int32_t>(place.below(static_cast<uint32_t>(2 * pad + 1))) - pad;
  const int32_t across =
      static_cast<int32_t>(place.below(static_cast<uint32_t>(2 * pad + 1))) - pad;
  image::shift(kShape, down, across, planes);
  if (coin.uniform() < set.flip) image::mirror(kShape, planes);
  std::vector<int> order{0, 1, 2, 3};
  for (uint32_t left = 4; left > 1; --left) std::swap(order[left - 1], order[jitter.below(left)]);
  std::vector<double> amount;
  for (int i = 0; i < 3; ++i)
    amount.push_back(jitter.uniform(std::max(0.0, 1 - set.jitter[static_cast<size_t>(i)]),
                                    1 + set.jitter[static_cast<size_t>(i)]));
  amount.push_back(jitter.uniform(-set.jitter[3], set.jitter[3]));
  for (const int step : order) {
    if (step == 0) image::change_brightness(kShape, amount[0], planes);
    if (step == 1) image::change_contrast(kShape, amount[1], planes);
    if (step == 2) image::change_saturation(kShape, amount[2], planes);
    if (step == 3) image::change_hue(kShape, amount[3], planes);
  }
  return planes;
}

TEST_F(Augmented, StepsComeInOrderWithTheirDraws) {
  auto config = cifar();
  config.pad = 4;
  config.flip = 0.5;
  config.jitter = {0.4, 0.5, 0.6, 0.1};
  const auto plain = open(cifar(), "plain");
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  for (uint64_t i = 0; i < kRecords; ++i) {
    const DrawKey key{.seed = 7, .epoch = i / 10, .sample = i};
    EXPECT_EQ(read(**dataset, key), expected_of(read(**plain, key), config, key)) << i;
  }
}

TEST_F(Augmented, WhatIsDescribedIsWhatIsDone) {
  auto config = cifar();
  config.pad = 4;
  config.flip = 0.5;
  const auto plain = open(cifar(), "plain");
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  for (uint64_t i = 0; i < kRecords; ++i) {
    const DrawKey key{.seed = 7, .epoch = 1, .sample = i};
    const std::string text = (*dataset)->describe_draws(i, key);
    int down = 0, across = 0;
    ASSERT_EQ(std::sscanf(text.c_str(), "shift=%d,%d", &down, &across), 2) << text;
    std::vector<std::byte> planes = read(**plain, key);
    image::shift(kShape, down, across, planes);
    if (text.ends_with(" flip")) image::mirror(kShape, planes);
    EXPECT_EQ(read(**dataset, key), planes) << text;
  }
  EXPECT_EQ((*plain)->describe_draws(0, {}), "");
}

TEST_F(Augmented, JitterIsDescribedStepByStepAsItIsDone) {
  auto config = cifar();
  config.jitter = {0.4, 0, 0.6, 0};
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  const std::string text = (*dataset)->describe_draws(3, {.seed = 7, .epoch = 1, .sample = 3});
  EXPECT_NE(text.find("brightness="), std::string::npos) << text;
  EXPECT_NE(text.find("saturation="), std::string::npos) << text;
  EXPECT_EQ(text.find("hue="), std::string::npos) << text;
}

TEST_F(Augmented, SeedAndEpochChangeThePictureAndNothingElseDoes) {
  auto config = cifar();
  config.pad = 4;
  config.jitter = {0.4, 0, 0, 0};
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  std::set<std::string> pictures;
  for (uint64_t seed = 0; seed < 4; ++seed)
    for (uint64_t epoch = 0; epoch < 4; ++epoch) {
      const DrawKey key{.seed = seed, .epoch = epoch, .sample = 3};
      EXPECT_EQ(read(**dataset, key), read(**dataset, key));
      pictures.insert(text_of(read(**dataset, key)));
    }
  EXPECT_EQ(pictures.size(), 16u);
}

TEST_F(Augmented, FlipsHalfOfThePicturesAndFlipOneAll) {
  const auto flipped = [&](double probability) {
    auto config = cifar();
    config.flip = probability;
    const auto dataset = open(config);
    const auto plain = open(cifar(), "plain");
    uint64_t count = 0;
    for (uint64_t epoch = 0; epoch < 40; ++epoch)
      for (uint64_t i = 0; i < kRecords; ++i) {
        const DrawKey key{.seed = 1, .epoch = epoch, .sample = i};
        auto mirrored = read(**plain, key);
        const bool same = read(**dataset, key) == mirrored;
        image::mirror(kShape, mirrored);
        EXPECT_TRUE(same || read(**dataset, key) == mirrored);
        count += !same;
      }
    return static_cast<double>(count) / (40.0 * kRecords);
  };
  EXPECT_NEAR(flipped(0.5), 0.5, 0.04);
  EXPECT_NEAR(flipped(0.1), 0.1, 0.03);
  EXPECT_EQ(flipped(1), 1);
}

TEST_F(Augmented, PadReachesEveryPlaceEvenly) {
  // One white pixel in the middle says where the picture went.
  std::string record(1, '\0');
  for (int k = 0; k < 3072; ++k) record += k % 1024 == 16 * 32 + 16 ? '\xff' : '\0';
  write("point/data_batch_1.bin", record);
  auto config = cifar();
  config.path = path("point");
  config.pad = 2;
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  std::map<size_t, int> places;
  for (uint64_t epoch = 0; epoch < 5000; ++epoch) {
    const auto picture = read(**dataset, {.seed = 1, .epoch = epoch, .sample = 0});
    const auto white = std::find(picture.begin(), picture.end(), std::byte{0xff});
    ++places[static_cast<size_t>(white - picture.begin())];
  }
  ASSERT_EQ(places.size(), 25u);
  for (size_t y = 14; y <= 18; ++y)
    for (size_t x = 14; x <= 18; ++x) EXPECT_NEAR((places[y * 32 + x]), 200, 60);
}

TEST_F(Augmented, ThreadsChangeNothing) {
  auto config = cifar();
  config.pad = 4;
  config.flip = 0.5;
  config.jitter = {0.4, 0.4, 0.4, 0.1};
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

TEST_F(Augmented, AnotherSettingIsAnotherFingerprintAndNoneIsTheOld) {
  std::set<std::string> prints{(*open(cifar()))->fingerprint()};
  auto none = cifar();
  none.jitter = {0, 0, 0, 0};
  EXPECT_EQ((*open(none))->fingerprint(), *prints.begin());
  const auto add = [&](auto change) {
    auto config = cifar();
    change(config);
    const auto dataset = open(config);
    EXPECT_TRUE(prints.insert((*dataset)->fingerprint()).second);
  };
  add([](auto& config) { config.pad = 4; });
  add([](auto& config) { config.pad = 3; });
  add([](auto& config) { config.flip = 0.5; });
  add([](auto& config) { config.jitter = {0, 0, 0, 0.1}; });
}

TEST_F(Augmented, OpensThroughItsIndex) {
  auto config = cifar();
  config.flip = 1;
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  const auto again = open_indexed("train", config, index_dir(), (*dataset)->fingerprint());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(read(**again, {.sample = 1}), read(**dataset, {.sample = 1}));
  EXPECT_EQ((*again)->origin(3).offset, (*dataset)->origin(3).offset);
  EXPECT_EQ((*again)->class_names().size(), 10u);
  config.flip = 0.5;
  EXPECT_EQ(open_indexed("train", config, index_dir(), (*dataset)->fingerprint()).status().code(),
            Code::kMismatch);
}

TEST_F(Augmented, WrongSettingsAreNamed) {
  const auto expect_wrong = [&](const std::string& key, auto change) {
    auto config = cifar();
    change(config);
    expect_error(config, Code::kInvalidArgument, {"data.train." + key});
  };
  expect_wrong("pad", [](auto& config) { config.pad = -1; });
  expect_wrong("pad: is 32", [](auto& config) { config.pad = 32; });
  expect_wrong("flip", [](auto& config) { config.flip = 1.1; });
  expect_wrong("flip", [](auto& config) { config.flip = std::nan(""); });
  expect_wrong("jitter", [](auto& config) { config.jitter = {0.1}; });
  expect_wrong("jitter", [](auto& config) { config.jitter = {0, 0, 0, 0.6}; });
  expect_wrong("jitter", [](auto& config) { config.jitter = {-0.1, 0, 0, 0}; });
  expect_wrong("pad, flip, jitter", [](auto& config) {
    config.kind = config::DatasetKind::kSynthetic;
    config.samples = 5;
    config.features = {4};
    config.flip = 0.5;
  });
}

// ---- Together with crops

class CroppedImages : public testing::FolderFixture {
 protected:
  void SetUp() override {
    FolderFixture::SetUp();
    for (uint32_t i = 0; i < 8; ++i)
      write("data/a/" + std::to_string(i),
            image::testing::png_of(image::testing::pattern(40 + i, 60)));
  }
  config::DatasetConfig images(const std::string& fit) const {
    config::DatasetConfig config;
    config.kind = config::DatasetKind::kImages;
    config.path = path("data");
    config.size = {24, 24};
    config.fit = fit;
    return config;
  }
  static std::vector<std::byte> read(const Dataset& dataset, const DrawKey& draw) {
    std::vector<std::byte> input(dataset.spec()[0].bytes()), label(8);
    const std::vector<std::span<std::byte>> outputs{input, label};
    EXPECT_TRUE(dataset.read(draw.sample, draw, outputs).ok());
    return input;
  }
};

TEST_F(CroppedImages, RandomCropsChangeWithTheEpochCenterCropsDoNot) {
  const auto random = open(images("random_crop"), "random");
  const auto center = open(images("center_crop"), "center");
  const auto stretched = open(images("stretch"), "stretched");
  ASSERT_TRUE(random.ok() && center.ok() && stretched.ok());
  std::set<std::string> pictures;
  for (uint64_t epoch = 0; epoch < 8; ++epoch) {
    pictures.insert(text_of(read(**random, {.seed = 1, .epoch = epoch, .sample = 2})));
    EXPECT_EQ(read(**center, {.seed = 1, .epoch = epoch, .sample = 2}),
              read(**center, {.sample = 2}));
  }
  EXPECT_EQ(pictures.size(), 8u);
  EXPECT_NE(read(**center, {.sample = 2}), read(**stretched, {.sample = 2}));
}

TEST_F(CroppedImages, FlippingDoesNotChangeWhichPartIsTaken) {
  auto config = images("random_crop");
  const auto plain = open(config, "plain");
  config.flip = 1;
  const auto flipped = open(config, "flipped");
  ASSERT_TRUE(plain.ok() && flipped.ok());
  for (uint64_t sample = 0; sample < 8; ++sample) {
    const DrawKey key{.seed = 2, .epoch = 3, .sample = sample};
    auto mirrored = read(**plain, key);
    image::mirror({.channels = 3, .height = 24, .width = 24}, mirrored);
    EXPECT_EQ(read(**flipped, key), mirrored);
  }
}

TEST_F(CroppedImages, AnotherRuleIsAnotherFingerprint) {
  std::set<std::string> prints;
  for (const char* const fit : {"stretch", "center_crop", "random_crop"})
    EXPECT_TRUE(prints.insert((*open(images(fit)))->fingerprint()).second);
}

}  // namespace
}  // namespace stoker::dataset
