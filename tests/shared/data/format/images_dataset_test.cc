#include <array>
#include <cstdio>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "shared/image/decoder.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/image/image_files.h"

namespace stoker::data::format {
namespace {

using image::testing::encode_jpeg;
using image::testing::encode_png_file;
using image::testing::plain;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_sample;
using ::testing::StartsWith;

class ImageFolderDatasetTest : public testing::FolderFixture {
 protected:
  config::DatasetConfig images() const {
    config::DatasetConfig config;
    config.source = config::ImageFolderDataset{};
    path_in(config) = path("data");
    glob_in(config) = "**/*";
    transforms_in(config) = {config::Resize{{4, 6}}};
    return config;
  }
  static std::string png(uint8_t value) {
    return encode_png_file(plain(5, 5, {value, value, value}));
  }
};

TEST_F(ImageFolderDatasetTest, SortsClassFoldersAndDetectsFormatByContent) {
  write("data/dog/1.png", encode_jpeg(plain(9, 9, {10, 10, 10})));  // wrong extension
  write("data/cat-b/x", png(20));
  write("data/cat/deep/2.jpg", png(30));
  const auto dataset = open(images());
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ((*dataset)->size(), 3u);
  EXPECT_EQ((*dataset)->classes(), 3u);
  EXPECT_THAT((*dataset)->class_names(), ElementsAre("cat", "cat-b", "dog"));
  EXPECT_EQ((*dataset)->spec()[0],
            (TensorSpec{.name = "input", .dtype = DType::kU8, .shape = {3, 4, 6}}));
  for (uint64_t i = 0; i < 3; ++i) {
    const auto sample = read_sample(**dataset, i);
    ASSERT_TRUE(sample.status.ok()) << sample.status.to_string();
    EXPECT_EQ(sample.label(), static_cast<int64_t>(i));
    EXPECT_EQ(sample.tensors[0].size(), 72u);
    EXPECT_NEAR(std::to_integer<int>(sample.tensors[0][0]), std::vector<int>({30, 20, 10})[i], 1);
  }
  EXPECT_EQ((*dataset)->source(0).file, path("data/cat/deep/2.jpg"));
}

// The classes and samples of ImageFolder of torchvision 0.26.
TEST_F(ImageFolderDatasetTest, ReadsFilesWithExtensionsOfImagesByDefault) {
  for (const std::string name : {"b/1.PNG", "b/2.jpg", "a/3.jpeg", "10/4.webp", "2/x.png"})
    write("data/" + name, png(1));
  write("data/a/Thumbs.db", "\xd0\xcf\x11\xe0junk");
  write("data/a/notes.txt", "x");
  auto config = images();
  glob_in(config) = config::ImageFolderDataset().glob;
  const auto dataset = opened(config);
  EXPECT_THAT(dataset->class_names(), ElementsAre("10", "2", "a", "b"));
  std::vector<std::string> files;
  for (uint64_t i = 0; i < dataset->size(); ++i) files.push_back(dataset->source(i).file);
  EXPECT_THAT(files,
              ElementsAre(path("data/10/4.webp"), path("data/2/x.png"), path("data/a/3.jpeg"),
                          path("data/b/1.PNG"), path("data/b/2.jpg")));
}

// Red of the first row and blue of the last one of what resize and center_crop of torchvision 0.26 with Pillow 13.0.0
// make of these images. With the middle of the image, of which they are up to 2 pixels away, the difference is up to 92.
TEST_F(ImageFolderDatasetTest, TakesPixelsOfCenterCropOfTorchvision) {
  struct Case {
    uint32_t height, width;
    config::Transforms transforms;
    std::vector<int> first_red, last_blue;
  };
  const auto crop = [](std::vector<int64_t> resize, std::vector<int64_t> size) {
    return config::Transforms{config::Resize{std::move(resize)},
                              config::CenterCrop{std::move(size)}};
  };
  const std::vector<Case> cases{
      {40,
       51,
       crop({20}, {15, 17}),
       {160, 135, 163, 132, 123, 151, 93, 107, 98, 58, 114, 58, 84, 143, 163, 139, 172},
       {136, 154, 176, 151, 168, 176, 145, 127, 61, 82, 114, 196, 119, 65, 82, 92, 113}},
      {40,
       51,
       crop({21}, {10, 14}),
       {88, 109, 80, 117, 113, 134, 142, 148, 187, 166, 166, 173, 128, 137},
       {121, 119, 173, 183, 188, 209, 203, 197, 191, 185, 110, 73, 67, 62}},
      {33,
       50,
       crop({16}, {11}),
       {165, 128, 124, 144, 87, 112, 79, 74, 108, 55, 107},
       {84, 97, 118, 134, 150, 149, 190, 204, 162, 105, 175}},
      {50, 33, crop({7}, {4}), {122, 148, 166, 148}, {142, 155, 150, 124}},
      {40,
       50,
       crop({17, 24}, {10, 11}),
       {124, 78, 74, 82, 94, 120, 125, 142, 148, 147, 152},
       {137, 138, 159, 170, 131, 122, 125, 142, 167, 196, 136}},
  };
  for (const Case& one : cases) {
    write("data/a/1.png", encode_png_file(image::testing::pattern(one.height, one.width)));
    auto config = images();
    transforms_in(config) = one.transforms;
    const auto dataset = opened(config);
    const auto pixels = read_sample(*dataset, 0).values<uint8_t>(0);
    for (size_t x = 0; x < one.first_red.size(); ++x) {
      EXPECT_NEAR(pixels[x], one.first_red[x], 2) << x;  // each of two resizes rounds
      EXPECT_NEAR(pixels[pixels.size() - one.last_blue.size() + x], one.last_blue[x], 2) << x;
    }
  }
}

TEST_F(ImageFolderDatasetTest, WarnsAboutFolderAboveSplits) {
  const auto log_of = [this] {
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(open(images()).ok());
    return ::testing::internal::GetCapturedStderr();
  };
  write("data/train/cat/1", png(1));
  write("data/other/1", png(1));
  EXPECT_THAT(log_of(), ::testing::Not(HasSubstr("look like splits")));
  write("data/Val/cat/1", png(1));
  EXPECT_THAT(log_of(), HasSubstr("class folders look like splits"));
}

TEST_F(ImageFolderDatasetTest, EscapesClassNamesThatAreNotUtf8) {
  write("data/caf\xe9/1", png(1));
  write("data/caf\xc3\xa9/1", png(1));
  EXPECT_THAT(opened(images())->class_names(), ElementsAre("caf\xc3\xa9", "caf\\xE9"));
}

TEST_F(ImageFolderDatasetTest, ConvertsToGrayWithOneChannel) {
  write("data/a/1", encode_png_file(plain(5, 5, {200, 100, 50})));
  auto config = images();
  set_image_mode(config, config::ImageMode::kGray);
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ((*dataset)->spec()[0].shape, (std::vector<int64_t>{1, 4, 6}));
  EXPECT_EQ(read_sample(**dataset, 0).text(), std::string(24, '\x7c'));
}

// Expected are the results of ImageOps.exif_transpose() of Pillow 13 for an image of 2 x 3.
TEST_F(ImageFolderDatasetTest, TurnsImagesUprightAsTheirExifDataSays) {
  const std::vector<std::pair<std::vector<int64_t>, std::vector<uint8_t>>> cases{
      {{2, 3}, {0, 40, 80, 120, 160, 200}}, {{2, 3}, {80, 40, 0, 200, 160, 120}},
      {{2, 3}, {200, 160, 120, 80, 40, 0}}, {{2, 3}, {120, 160, 200, 0, 40, 80}},
      {{3, 2}, {0, 120, 40, 160, 80, 200}}, {{3, 2}, {120, 0, 160, 40, 200, 80}},
      {{3, 2}, {200, 80, 160, 40, 120, 0}}, {{3, 2}, {80, 200, 40, 160, 0, 120}}};
  const std::string file = encode_png_file(
      {.height = 2, .width = 3, .channels = 1, .samples = {0, 40, 80, 120, 160, 200}},
      {.color_type = 0});
  constexpr size_t kAfterHeader = 33;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i + 1);
    const std::string tiff = std::string("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 19) +
                             static_cast<char>(i + 1) + std::string(6, '\0');
    std::string turned = file;
    turned.insert(kAfterHeader, image::testing::png_chunk("eXIf", tiff));
    write("data/a/1.png", turned);
    auto config = images();
    set_image_mode(config, config::ImageMode::kGray);
    transforms_in(config) = {config::Resize{cases[i].first}};
    const std::string stored = opened(config)->fingerprint();
    source_in<config::ImageFolderDataset>(config).apply_exif_orientation = true;
    const auto dataset = opened(config);
    EXPECT_NE(dataset->fingerprint(), stored);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(read_sample(*dataset, 0).values<uint8_t>(0), cases[i].second);
    const std::string log = ::testing::internal::GetCapturedStderr();
    if (i == 0) {
      EXPECT_EQ(log, "");
    } else {
      EXPECT_THAT(log, HasSubstr("images turned upright dataset=train count=1"));
    }
    transforms_in(config) = {config::RandomResizedCrop{cases[i].first}};
    const auto cropped = opened(config);
    ::testing::internal::CaptureStderr();
    EXPECT_THAT(cropped->info().maybe_files->describe_transforms(0, {}), StartsWith("crop="));
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");  // described, not read
  }
}

TEST_F(ImageFolderDatasetTest, RejectsImagesAboveConfiguredNumberOfPixels) {
  EXPECT_EQ(config::ImageFolderDataset().max_image_pixels, 100'000'000);
  write("data/a/1", png(7));  // 5x5
  auto config = images();
  const auto status_with = [&](int64_t pixels) {
    source_in<config::ImageFolderDataset>(config).max_image_pixels = pixels;
    return read_sample(*opened(config), 0).status;
  };
  EXPECT_TRUE(status_with(25).ok());
  const Status status = status_with(24);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("5x5 pixels: more than the limit of 24 pixels "
                                          "(max_image_pixels)"));
  EXPECT_TRUE(status_with(25).ok()) << "of the same thread";
}

TEST_F(ImageFolderDatasetTest, SplitsEveryClassInSameRatio) {
  for (int i = 0; i < 10; ++i) write("data/a/" + std::to_string(i), png(static_cast<uint8_t>(i)));
  for (int i = 0; i < 5; ++i)
    write("data/b/" + std::to_string(i), png(static_cast<uint8_t>(100 + i)));
  auto first = images(), second = images();
  first.split = {0, 0.8};
  second.split = {0.8, 1};
  const auto train = open(first), valid = open(second, "val");
  ASSERT_TRUE(train.ok() && valid.ok());
  EXPECT_EQ((*train)->size(), 12u);
  EXPECT_EQ((*valid)->size(), 3u);
  EXPECT_EQ((*valid)->classes(), 2u);
  const auto first_bytes = [](const Dataset& dataset) {
    std::vector<int> values;
    for (uint64_t i = 0; i < dataset.size(); ++i)
      values.push_back(std::to_integer<int>(read_sample(dataset, i).tensors[0][0]));
    return values;
  };
  EXPECT_THAT(first_bytes(**train), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 100, 101, 102, 103));
  EXPECT_THAT(first_bytes(**valid), ElementsAre(8, 9, 104));
  EXPECT_EQ(read_sample(**valid, 2).label(), 1);
}

TEST_F(ImageFolderDatasetTest, DescribesRandomCropAsApplied) {
  const std::string file = encode_png_file(image::testing::pattern(40, 50));
  write("data/a/1", file);
  auto config = images();
  transforms_in(config) = {config::RandomResizedCrop{{4, 6}}};
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  std::set<std::string> texts;
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    const RandomKey key{.seed = 7, .epoch = epoch, .sample = 0};
    const std::string text = (*dataset)->info().maybe_files->describe_transforms(0, key);
    image::CropBox box;
    ASSERT_EQ(std::sscanf(text.c_str(), "crop=%lf,%lf,%lfx%lf", &box.left, &box.top, &box.width,
                          &box.height),
              4)
        << text;
    std::vector<std::byte> expected(72), taken(72), label(8);
    ASSERT_TRUE(image::Decoder()
                    .decode(std::as_bytes(std::span(file)), {3, 4, 6}, expected,
                            [&](uint32_t, uint32_t) { return box; })
                    .ok());
    const std::array<std::span<std::byte>, 2> outputs{taken, label};
    ASSERT_TRUE((*dataset)->read(0, key, outputs).ok());
    EXPECT_EQ(taken, expected) << text;
    texts.insert(text);
  }
  EXPECT_GT(texts.size(), 15u);
  EXPECT_EQ((*open(images(), "plain"))->info().maybe_files->describe_transforms(0, {}), "");
}

class PackedImagesTest : public ImageFolderDatasetTest {
 protected:
  void SetUp() override {
    ImageFolderDatasetTest::SetUp();
    for (int i = 0; i < 30; ++i)
      write("data/" + std::string(1, static_cast<char>('a' + i % 3)) + "/" + std::to_string(i),
            png(static_cast<uint8_t>(i)));
  }
  config::DatasetConfig packed() const {
    config::DatasetConfig config = images();
    cache_in(config) = config::CacheConfig{};
    return config;
  }
  std::string pack() const { return index_dir() + "/train.files.packed"; }
};

TEST_F(PackedImagesTest, ReturnsSameSamplesAsFiles) {
  const auto files = open(images());
  ASSERT_TRUE(files.ok());
  EXPECT_FALSE(std::filesystem::exists(pack()));
  const auto dataset = open(packed());
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_TRUE(std::filesystem::exists(pack()));
  EXPECT_EQ((*dataset)->fingerprint(), (*files)->fingerprint());
  ASSERT_EQ((*dataset)->size(), 30u);
  for (uint64_t sample = 0; sample < 30; ++sample) {
    EXPECT_EQ(read_sample(**dataset, sample).tensors, read_sample(**files, sample).tensors);
    EXPECT_EQ((*dataset)->source(sample).file, (*files)->source(sample).file);
  }
}

// Decodes complete images and crops, including a corrupt image.
TEST_F(PackedImagesTest, ReturnsSameSamplesWithRestartMarkers) {
  const std::string photograph = image::testing::encode_jpeg(image::testing::pattern(150, 230));
  write("data/a/photograph.jpg", photograph);
  write("data/b/progressive.jpg",
        image::testing::encode_jpeg(image::testing::pattern(200, 120), {.progressive = true}));
  write("data/c/corrupted.jpg", photograph.substr(0, photograph.size() / 2));
  const std::vector<config::Transforms> fits{{config::Resize{{24, 40}}},
                                             {config::Resize{{46}}, config::CenterCrop{{24, 40}}},
                                             {config::RandomResizedCrop{{24, 40}}}};
  for (size_t fit = 0; fit < fits.size(); ++fit) {
    config::DatasetConfig config = images();
    transforms_in(config) = fits[fit];
    const auto files = open(config);
    ASSERT_TRUE(files.ok()) << files.status().to_string();
    cache_in(config) = config::CacheConfig{.jpeg_restart_markers = true, .dir = {}};
    const auto dataset = open(config);
    ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
    EXPECT_TRUE(std::filesystem::exists(index_dir() + "/train.files.packed_restart"));
    EXPECT_EQ((*dataset)->fingerprint(), (*files)->fingerprint());
    ASSERT_EQ((*dataset)->size(), 33u);
    for (uint64_t sample = 0; sample < 33; ++sample) {
      const auto expected = read_sample(**files, sample), read = read_sample(**dataset, sample);
      EXPECT_EQ(read.tensors, expected.tensors) << fit << ' ' << sample;
      EXPECT_EQ(read.status.code(), expected.status.code()) << fit << ' ' << sample;
    }
  }
  const auto again = open(images());
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(std::filesystem::exists(index_dir() + "/train.files.packed_restart"));
}

TEST_F(PackedImagesTest, ReadsSamplesWithoutSourceFiles) {
  const auto dataset = open(packed());
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  std::filesystem::remove_all(path("data"));
  for (uint64_t sample = 0; sample < 30; ++sample)
    EXPECT_TRUE(read_sample(**dataset, sample).status.ok()) << sample;
}

TEST_F(PackedImagesTest, RebuildsCorruptPackAndRemovesUnusedPack) {
  ASSERT_TRUE(open(packed()).ok());
  std::filesystem::resize_file(pack(), 10);
  const auto again = open(packed());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(read_sample(**again, 29).status.ok());
  ASSERT_TRUE(open(images()).ok());
  EXPECT_FALSE(std::filesystem::exists(pack()));
}

TEST_F(PackedImagesTest, ReadsFileItselfWhenPackIsTruncatedAndReportsBothIfItIsGone) {
  const auto dataset = open(packed());
  ASSERT_TRUE(dataset.ok());
  const auto before = read_sample(**dataset, 29).tensors;
  std::filesystem::resize_file(pack(), 10);
  const auto after = read_sample(**dataset, 29);
  EXPECT_TRUE(after.status.ok()) << after.status.to_string();
  EXPECT_EQ(after.tensors, before);
  std::filesystem::remove((*dataset)->source(29).file);
  const Status status = read_sample(**dataset, 29).status;
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr((*dataset)->source(29).file));
  EXPECT_THAT(status.message(), HasSubstr(pack()));
}

TEST_F(PackedImagesTest, ReportsOversizedFileAndLeavesNoPack) {
  std::filesystem::resize_file(path("data/b/4"), uint64_t{1} << 30);  // sparse
  expect_error(packed(), StatusCode::kCorrupt, {"data.train.cache", path("data/b/4"), "limit"});
  EXPECT_TRUE(has_no_index_files());
}

TEST_F(ImageFolderDatasetTest, PreservesClassNumbersWhenSplitOmitsClass) {
  write("data/a/1", png(1));
  for (int i = 0; i < 4; ++i) write("data/b/" + std::to_string(i), png(2));
  auto config = images();
  config.split = {0, 0.5};
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ((*dataset)->size(), 2u);
  EXPECT_EQ((*dataset)->classes(), 2u);
  EXPECT_EQ(read_sample(**dataset, 0).label(), 1);
  config.split = {0, 0.1};
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.split"});
}

TEST_F(ImageFolderDatasetTest, RejectsEmptyClassFolderUnlessExcludedByGlob) {
  write("data/cat/1.jpg", png(1));
  write("data/notes/readme.txt", "x");
  std::filesystem::create_directory(path("data/dog"));
  expect_error(images(), StatusCode::kNotFound, {path("data/dog"), "class folder"});
  auto config = images();
  glob_in(config) = "cat/*.jpg";
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_THAT((*dataset)->class_names(), ElementsAre("cat"));
}

TEST_F(ImageFolderDatasetTest, IgnoresFilesOutsideClassFoldersAndLogsCount) {
  write("data/a/1", png(1));
  write("data/readme", "x");
  write("data/labels.csv", "x");
  ::testing::internal::CaptureStderr();
  const auto dataset = open(images());
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ((*dataset)->size(), 1u);
  EXPECT_THAT(log, HasSubstr("count=2"));
}

TEST_F(ImageFolderDatasetTest, RejectsFolderWithoutClassesOrImages) {
  write("data/1.jpg", png(1));
  expect_error(images(), StatusCode::kNotFound, {path("data"), "a folder per class"});
  std::filesystem::remove_all(path("data"));
  write("data/a/1.txt", "text");
  write("data/a/2.txt", "");
  expect_error(images(), StatusCode::kCorrupt, {path("data/a/1.txt"), "JPEG, PNG or WebP"});
  write("file", "x");
  auto config = images();
  path_in(config) = path("file");
  expect_error(config, StatusCode::kInvalidArgument, {"not a folder"});
}

TEST_F(ImageFolderDatasetTest, ReportsCorruptImageWithFile) {
  const std::string jpeg = encode_jpeg(image::testing::pattern(40, 40));
  write("data/a/0-good", jpeg);
  write("data/a/1-cut", jpeg.substr(0, jpeg.size() / 2));
  write("data/a/2-garbage", "\xff\xd8\xff garbage");
  write("data/a/3-empty", "");
  write("data/a/4-text", "hello");
  write("data/a/5-cut-png", png(1).substr(0, 40));
  write("data/a/6-good", png(6));
  const auto dataset = open(images());
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_TRUE(read_sample(**dataset, 0).status.ok());
  for (uint64_t i = 1; i <= 5; ++i) {
    const Status status = read_sample(**dataset, i).status;
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << i;
    EXPECT_THAT(status.message(), HasSubstr(path("data/a/" + std::to_string(i))));
  }
  EXPECT_TRUE(read_sample(**dataset, 6).status.ok());
}

TEST_F(ImageFolderDatasetTest, ReportsNotFoundWhenFileIsDeletedAfterIndexing) {
  write("data/a/1", png(1));
  write("data/a/2", png(2));
  const auto dataset = open(images());
  ASSERT_TRUE(dataset.ok());
  std::filesystem::remove(path("data/a/1"));
  EXPECT_EQ(read_sample(**dataset, 0).status.code(), StatusCode::kNotFound);
  EXPECT_TRUE(read_sample(**dataset, 1).status.ok());
}

TEST_F(ImageFolderDatasetTest, RejectsInvalidSettingsWithKey) {
  write("data/a/1", png(1));
  for (const auto& size :
       std::vector<std::vector<int64_t>>{{}, {5}, {0, 5}, {5, -1}, {1 << 20, 5}, {1, 2, 3}}) {
    auto config = images();
    set_transform(config, config::Resize{size});
    expect_error(config, StatusCode::kInvalidArgument, {"data.train.transforms: resize.size"});
  }
  auto config = images();
  transforms_in(config).clear();
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.transforms: ", "resize"});
}

TEST_F(ImageFolderDatasetTest, DecodesSameImagesOnAllThreads) {
  for (int i = 0; i < 20; ++i)
    write("data/a/" + std::to_string(100 + i),
          i % 2 ? png(static_cast<uint8_t>(i))
                : encode_jpeg(image::testing::pattern(20 + static_cast<uint32_t>(i), 30)));
  const auto dataset = open(images());
  ASSERT_TRUE(dataset.ok());
  std::vector<std::string> expected;
  for (uint64_t i = 0; i < 20; ++i) expected.push_back(read_sample(**dataset, i).text());
  std::vector<std::thread> threads;
  std::vector<int> wrong(3);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 200; ++i)
        wrong[t] += read_sample(**dataset, (i * 7 + t) % 20).text() != expected[(i * 7 + t) % 20];
    });
  }
  for (auto& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace stoker::data::format
