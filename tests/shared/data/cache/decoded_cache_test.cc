// `cache: {type: decoded}`: after the first read, samples come from a file; nothing else changes.
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "shared/data/files/prefetched_bytes.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/small_datasets.h"

namespace stoker::data::cache {
namespace {

using config::DatasetConfig;
using ::testing::HasSubstr;
using testing::read_sample;
using testing::Sample;

constexpr uint64_t kHeaderBytes = 96, kCheckBytes = 8, kLabelBytes = 8;

// The results of read() for every sample of an epoch, including errors.
struct Epoch {
  std::vector<std::string> samples;
  std::vector<std::string> errors;
  bool operator==(const Epoch&) const = default;
};
Epoch read_epoch(const Dataset& data, uint64_t epoch) {
  Epoch read;
  for (uint64_t sample = 0; sample < data.size(); ++sample) {
    std::vector<std::string> tensors;
    for (const TensorSpec& tensor : data.spec()) tensors.emplace_back(tensor.bytes(), '\xee');
    std::vector<std::span<std::byte>> outputs;
    for (std::string& tensor : tensors)
      outputs.push_back(std::as_writable_bytes(std::span(tensor)));
    const Status status = data.read(sample, {.seed = 5, .epoch = epoch, .sample = sample}, outputs);
    read.errors.push_back(status.message());
    std::string all;
    for (const std::string& tensor : tensors) all += tensor;
    read.samples.push_back(status.ok() ? all : "");
  }
  return read;
}

class DecodedCacheTest : public testing::FolderFixture {
 protected:
  // Images of each format, some large enough to be decoded at a smaller scale, some corrupt.
  DatasetConfig image_config() const {
    DatasetConfig config = testing::small::images(path("set"));
    write("set/cat/large.jpg", image::testing::encode_jpeg(image::testing::pattern(200, 300)));
    write("set/dog/cut.jpg",
          image::testing::encode_jpeg(image::testing::pattern(90, 90)).substr(0, 900));
    write("set/dog/text.jpg", "no image");
    set_transform(config, config::Resize{{20, 24}});
    return config;
  }
  static DatasetConfig decoded(DatasetConfig config) {
    cache_in(config) = config::CacheConfig{.type = config::CacheType::kDecoded, .dir = {}};
    return config;
  }
  std::string file() const { return index_dir() + "/train.samples.decoded"; }
  uint64_t place_of(uint64_t sample, uint64_t sample_bytes) const {
    return kHeaderBytes + sample * (sample_bytes + kCheckBytes);
  }
  static void change_byte(const std::string& name, uint64_t offset) {
    std::fstream stream(name, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const auto byte = static_cast<char>(stream.get() ^ 0x40);
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(byte);
  }
  std::unique_ptr<Dataset> opened(const DatasetConfig& config,
                                  const std::string& name = "train") const {
    auto data = open(config, name);
    EXPECT_TRUE(data.ok()) << data.status().to_string();
    return *std::move(data);
  }
  std::unique_ptr<Dataset> as_a_reader(const DatasetConfig& config,
                                       const std::string& fingerprint) const {
    auto data = pipeline::open_indexed("train", config, index_dir(), fingerprint);
    EXPECT_TRUE(data.ok()) << data.status().to_string();
    return *std::move(data);
  }
  // Three epochs, in the process that fills the file and in another one.
  void expect_as_without(const DatasetConfig& config) const {
    const auto plain = opened(config, "plain");
    const auto data = opened(decoded(config));
    EXPECT_EQ(data->fingerprint(), plain->fingerprint());
    for (uint64_t epoch = 0; epoch < 3; ++epoch)
      EXPECT_EQ(read_epoch(*data, epoch), read_epoch(*plain, epoch)) << epoch;
    const auto reader = as_a_reader(decoded(config), plain->fingerprint());
    for (uint64_t epoch = 0; epoch < 3; ++epoch)
      EXPECT_EQ(read_epoch(*reader, epoch), read_epoch(*plain, epoch)) << epoch;
    EXPECT_EQ(reader->source(1).file, plain->source(1).file);
    EXPECT_EQ(reader->info().maybe_files->describe_transforms(1, {.epoch = 2}),
              plain->info().maybe_files->describe_transforms(1, {.epoch = 2}));
  }
};

TEST_F(DecodedCacheTest, ReturnsSameSamplesAndErrorsWithEveryTransform) {
  const DatasetConfig plain = image_config();
  std::vector<DatasetConfig> all(6, plain);
  const auto pad = [](int64_t padding) {
    return config::RandomCrop{.size = {20, 24}, .padding = padding};
  };
  transforms_in(all[1]) = {config::Resize{{27}}, config::CenterCrop{{20, 24}}};
  set_image_mode(all[2], config::ImageMode::kGray);
  set_transform(all[2], pad(3));
  set_transform(all[3], config::Resize{{7, 90}});
  set_transform(all[3], config::RandomHorizontalFlip{.p = 0.5});
  set_transform(all[4], config::ColorJitter{0.4, 0.4, 0.4, 0.1});
  all[4].split = {0.2, 0.9};
  all[5].skip_samples = 7;
  all[5].max_samples = 30;
  set_transform(all[5], pad(2));
  set_transform(all[5], config::RandomHorizontalFlip{.p = 0.5});
  for (size_t which = 0; which < all.size(); ++which) {
    SCOPED_TRACE(which);
    expect_as_without(all[which]);
  }
}

TEST_F(DecodedCacheTest, SupportsImageListsWebdatasetAndTfrecord) {
  expect_as_without(testing::small::list(path("list")));
  expect_as_without(testing::small::tar(path("tar")));
  expect_as_without(testing::small::tfrecord(path("records")));
}

TEST_F(DecodedCacheTest, ReadsCachedSamplesWithoutSourceFiles) {
  const DatasetConfig config = decoded(testing::small::images(path("set")));
  const auto data = opened(config);
  const Epoch first = read_epoch(*data, 0);
  std::filesystem::remove_all(path("set"));
  EXPECT_EQ(read_epoch(*data, 0), first);
  EXPECT_EQ(read_epoch(*as_a_reader(config, data->fingerprint()), 0), first);
}

TEST_F(DecodedCacheTest, ReusesFileAfterRestartUnlessSamplesChange) {
  const DatasetConfig config = decoded(testing::small::images(path("set")));
  const uint64_t sample_bytes = 3 * 32 * 32 + kLabelBytes;
  const auto is_there = [&](uint64_t sample) {
    const std::string bytes = content_of(".index/train.samples.decoded");
    return bytes.substr(place_of(sample, sample_bytes) + sample_bytes, kCheckBytes) !=
           std::string(kCheckBytes, '\0');
  };
  ASSERT_TRUE(read_sample(*opened(config), 3).status.ok());
  EXPECT_TRUE(is_there(3));
  EXPECT_FALSE(is_there(4));
  opened(config);
  EXPECT_TRUE(is_there(3)) << "the same samples";
  age("set/cat/0", 5);
  opened(config);
  EXPECT_FALSE(is_there(3)) << "an image is another one";
  ASSERT_TRUE(read_sample(*opened(config), 3).status.ok());
  DatasetConfig other = config;
  transforms_in(other) = {config::Resize{{36}}, config::CenterCrop{{32, 32}}};
  opened(other);
  EXPECT_FALSE(is_there(3)) << "images become others";
  opened(testing::small::images(path("set")));
  EXPECT_FALSE(std::filesystem::exists(file())) << "not wanted any more";
}

TEST_F(DecodedCacheTest, DetectsCorruptSampleAndDecodesAgain) {
  const DatasetConfig config = decoded(testing::small::images(path("set")));
  const auto data = opened(config);
  const Epoch good = read_epoch(*data, 0);
  const uint64_t sample_bytes = 3 * 32 * 32 + kLabelBytes;
  const uint64_t begin = place_of(5, sample_bytes);
  for (uint64_t at = begin; at < begin + sample_bytes + kCheckBytes; at += 97) {
    change_byte(file(), at);
    ASSERT_EQ(read_epoch(*data, 0), good) << at;
  }
  for (uint64_t at = begin + sample_bytes; at < begin + sample_bytes + kCheckBytes; ++at) {
    change_byte(file(), at);
    ASSERT_EQ(read_epoch(*data, 0), good) << at;
  }
  std::filesystem::remove_all(path("set"));
  EXPECT_EQ(read_epoch(*data, 0), good) << "put in again each time";
  change_byte(file(), begin);
  EXPECT_THAT(read_sample(*data, 5).status.message(), HasSubstr(data->source(5).file));
  EXPECT_TRUE(read_sample(*data, 4).status.ok());
}

TEST_F(DecodedCacheTest, RejectsSwappedSamples) {
  const DatasetConfig config = decoded(testing::small::images(path("set")));
  const auto data = opened(config);
  const Epoch good = read_epoch(*data, 0);
  const uint64_t slot_bytes = 3 * 32 * 32 + kLabelBytes + kCheckBytes;
  std::string bytes = content_of(".index/train.samples.decoded");
  std::swap_ranges(bytes.begin() + kHeaderBytes, bytes.begin() + kHeaderBytes + slot_bytes,
                   bytes.begin() + kHeaderBytes + slot_bytes);
  std::fstream(file(), std::ios::in | std::ios::out | std::ios::binary) << bytes;
  EXPECT_EQ(read_epoch(*data, 0), good);
}

TEST_F(DecodedCacheTest, DecodesAgainWhenFileIsTruncatedWhileOpen) {
  const DatasetConfig config = decoded(testing::small::images(path("set")));
  const auto data = opened(config);
  const Epoch good = read_epoch(*data, 0);
  for (const uint64_t bytes : {20'000u, 100u, 0u}) {
    std::filesystem::resize_file(file(), bytes);
    EXPECT_EQ(read_epoch(*data, 0), good) << bytes;
  }
}

TEST_F(DecodedCacheTest, RebuildsInvalidFile) {
  const DatasetConfig config = decoded(testing::small::images(path("set")));
  const Epoch good = read_epoch(*opened(config), 0);
  const auto fifth = read_sample(*opened(config), 5).tensors;
  for (uint64_t at = 0; at < kHeaderBytes; ++at) {  // version, sizes, identity
    change_byte(file(), at);
    const auto late = pipeline::open_indexed("train", config, index_dir(), "");
    ASSERT_TRUE(late.ok());
    EXPECT_TRUE((*late)->writable_fds().empty()) << "a reader does not take it";
    EXPECT_EQ(read_sample(**late, 5).tensors, fifth) << at;
    EXPECT_EQ(opened(config)->writable_fds().size(), 1u) << at;
  }
  for (const std::string& content :
       {std::string(), std::string("text"), std::string(1 << 20, '\0')}) {
    write(".index/train.samples.decoded", content);
    const auto data = opened(config);
    EXPECT_EQ(data->writable_fds().size(), 1u);
    EXPECT_EQ(read_epoch(*data, 0), good);
  }
  std::filesystem::resize_file(file(), std::filesystem::file_size(file()) - 1);
  EXPECT_EQ(read_epoch(*opened(config), 0), good);
  std::filesystem::remove(file());
  EXPECT_EQ(read_epoch(*as_a_reader(config, ""), 0), good);
}

TEST_F(DecodedCacheTest, ChecksFreeSpaceForSelectedSamplesOnOpen) {
  write("set/p.png", image::testing::encode_png_file(image::testing::plain(2, 2, {1, 2, 3})));
  std::string rows = "path,label\n";
  for (int i = 0; i < 50'000; ++i) rows += "p.png,0\n";  // 40 TB
  write("set/list.csv", rows);
  DatasetConfig config =
      decoded({.source = config::ImageListDataset{.path = path("set/list.csv"),
                                                  .num_classes = {},
                                                  .transforms = {config::Resize{{16384, 16384}}},
                                                  .cache = {}}});
  expect_error(config, StatusCode::kNoSpace,
               {"data.train.cache", index_dir(), " MiB are free; make room"});
  EXPECT_FALSE(std::filesystem::exists(file()));
  config.max_samples = 3;
  set_transform(config, config::Resize{{16, 16}});
  ASSERT_TRUE(open(config).ok());
  EXPECT_EQ(std::filesystem::file_size(file()), place_of(3, 3 * 16 * 16 + kLabelBytes))
      << "room for what is taken";
}

TEST_F(DecodedCacheTest, RejectsIncompatibleSettings) {
  DatasetConfig config = decoded(testing::small::images(path("set")));
  transforms_in(config) = {config::RandomResizedCrop{{32, 32}}};
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.cache.type", "random_resized_crop", "jpeg_restart_markers"});
  config = decoded(testing::small::images(path("set")));
  cache_in(config)->jpeg_restart_markers = true;
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.cache.jpeg_restart_markers", "packed"});
  config = decoded(testing::small::tfrecord(path("records")));
  sequence_in(config).max_length = 5;
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.cache.type", "sequence.max_length"});
  config = testing::small::tar(path("tar"));
  cache_in(config) = config::CacheConfig{};
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.cache.type", "image_folder"});
}

TEST_F(DecodedCacheTest, UsesSeparateFilePerMixtureComponent) {
  config::DatasetConfigs datasets{{"one", decoded(testing::small::images(path("one")))},
                                  {"two", testing::small::images(path("two"))},
                                  {"three", decoded(testing::small::images(path("three")))}};
  datasets["train"].source = config::Concat{{"one", "two", "three"}};
  const auto data = pipeline::open_dataset("train", datasets, index_dir(), {});
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_EQ((*data)->writable_fds().size(), 2u);
  const Epoch first = read_epoch(**data, 0);
  std::filesystem::remove_all(path("one"));
  std::filesystem::remove_all(path("three"));
  EXPECT_EQ(read_epoch(**data, 0), first);
}

TEST_F(DecodedCacheTest, AllowsConcurrentFillByThreadsAndProcesses) {
  const DatasetConfig config = testing::small::images(path("set"));
  const Epoch expected = read_epoch(*opened(config, "plain"), 0);
  const std::string fingerprint = opened(decoded(config))->fingerprint();
  const std::array readers{as_a_reader(decoded(config), fingerprint),
                           as_a_reader(decoded(config), fingerprint)};
  std::array<Epoch, 4> read;
  {
    std::vector<std::jthread> threads;
    for (size_t thread = 0; thread < read.size(); ++thread)
      threads.emplace_back([&, thread] { read[thread] = read_epoch(*readers[thread % 2], 0); });
  }
  for (const Epoch& each : read) EXPECT_EQ(each, expected);
}

}  // namespace
}  // namespace stoker::data::cache
