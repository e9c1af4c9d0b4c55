#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/support/packed_bytes.h"

namespace stoker::data::format {
namespace {

using test::big_endian;
using test::gzip;
using testing::read_sample;

// Image i of 2x3 pixels is filled with i; its label is i mod 4.
std::string encoded_images(uint32_t count) {
  std::string file = big_endian(0x803) + big_endian(count) + big_endian(2) + big_endian(3);
  for (uint32_t i = 0; i < count; ++i) file += std::string(6, static_cast<char>(i));
  return file;
}
std::string labels(uint32_t count) {
  std::string file = big_endian(0x801) + big_endian(count);
  for (uint32_t i = 0; i < count; ++i) file += static_cast<char>(i % 4);
  return file;
}

class IdxDatasetTest : public testing::FolderFixture {
 protected:
  config::DatasetConfig idx() const {
    config::DatasetConfig config;
    config.source = config::IdxDataset{};
    path_in(config) = path("images");
    source_in<config::IdxDataset>(config).labels_path = path("labels");
    return config;
  }
  void expect_corrupt(const std::string& images_file, const std::string& labels_file,
                      const std::vector<std::string>& words) {
    write("images", images_file);
    write("labels", labels_file);
    expect_error(idx(), StatusCode::kCorrupt, words);
  }
};

TEST_F(IdxDatasetTest, ReadsImagesAndLabels) {
  write("images", encoded_images(10));
  write("labels", labels(10));
  const auto dataset = open(idx());
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ((*dataset)->size(), 10u);
  EXPECT_EQ((*dataset)->classes(), 4u);
  EXPECT_EQ((*dataset)->spec()[0],
            (TensorSpec{.name = "input", .dtype = DType::kU8, .shape = {1, 2, 3}}));
  EXPECT_EQ((*dataset)->spec()[1],
            (TensorSpec{.name = "label", .dtype = DType::kI64, .shape = {}}));
  for (uint64_t i = 0; i < 10; ++i) {
    const auto sample = read_sample(**dataset, i);
    ASSERT_TRUE(sample.status.ok());
    EXPECT_EQ(sample.text(), std::string(6, static_cast<char>(i)));
    EXPECT_EQ(sample.label(), static_cast<int64_t>(i % 4));
  }
  EXPECT_EQ((*dataset)->source(2).offset, 16u + 12u);
}

TEST_F(IdxDatasetTest, SplitsByPosition) {
  write("images", encoded_images(10));
  write("labels", labels(10));
  auto config = idx();
  config.split = {0.7, 1};
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ((*dataset)->size(), 3u);
  EXPECT_EQ(read_sample(**dataset, 0).text(), std::string(6, '\7'));
  config.split = {0, 0.01};
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.split"});
}

TEST_F(IdxDatasetTest, RejectsTruncationAtAnyByte) {
  write("labels", labels(5));
  const std::string whole = encoded_images(5);
  for (size_t length = 0; length < whole.size(); ++length) {
    write("images", whole.substr(0, length));
    expect_error(idx(), StatusCode::kCorrupt, {path("images")});
  }
  write("images", whole);
  const std::string all_labels = labels(5);
  for (size_t length = 0; length < all_labels.size(); ++length) {
    write("labels", all_labels.substr(0, length));
    expect_error(idx(), StatusCode::kCorrupt, {path("labels")});
  }
}

TEST_F(IdxDatasetTest, RejectsInvalidHeaders) {
  const auto header = [](uint32_t count, uint32_t height, uint32_t width) {
    return big_endian(0x803) + big_endian(count) + big_endian(height) + big_endian(width);
  };
  expect_corrupt(header(~0u, ~0u, ~0u) + "x", labels(5), {"does not fit"});
  expect_corrupt(header(1u << 31, 1u << 31, 4) + "x", labels(5), {"does not fit"});
  expect_corrupt(header(0, 2, 3), labels(0), {"does not fit"});
  expect_corrupt(header(5, 0, 3), labels(5), {"does not fit"});
  expect_corrupt(encoded_images(5) + "x", labels(5), {"does not fit"});
}

TEST_F(IdxDatasetTest, RequiresEqualNumberOfLabelsAndImages) {
  expect_corrupt(encoded_images(5), labels(4), {path("labels"), "4 labels", "5 images"});
  expect_corrupt(encoded_images(5), labels(6), {"6 labels"});
}

TEST_F(IdxDatasetTest, RejectsSwappedOrMissingFiles) {
  expect_corrupt(labels(50), encoded_images(5), {path("images"), "2049", "2051"});
  auto config = idx();
  source_in<config::IdxDataset>(config).labels_path = "";
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.labels_path"});
  source_in<config::IdxDataset>(config).labels_path = path("missing");
  expect_error(config, StatusCode::kNotFound, {"data.train.labels_path", path("missing")});
  config = idx();
  path_in(config) = root_.string();
  expect_error(config, StatusCode::kInvalidArgument, {"not a regular file"});
}

// ---- Gzip files

TEST_F(IdxDatasetTest, ReadsSameSamplesFromGzipFiles) {
  write("images", encoded_images(10));
  write("labels", labels(10));
  std::vector<std::string> expected;
  const auto plain = open(idx());
  ASSERT_TRUE(plain.ok());
  for (uint64_t i = 0; i < 10; ++i) expected.push_back(read_sample(**plain, i).text());
  for (const auto& [images_file, labels_file] : std::vector<std::pair<std::string, std::string>>{
           {gzip(encoded_images(10)), labels(10)},
           {encoded_images(10), gzip(labels(10))},
           {gzip(encoded_images(10).substr(0, 20)) + gzip(encoded_images(10).substr(20)),
            gzip(labels(10))}}) {
    write("images", images_file);
    write("labels", labels_file);
    const auto packed = open(idx());
    ASSERT_TRUE(packed.ok()) << packed.status().to_string();
    const auto again =
        pipeline::open_indexed("train", idx(), index_dir(), (*packed)->fingerprint());
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    for (uint64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(read_sample(**packed, 9 - i).text(), expected[9 - i]);
      EXPECT_EQ(read_sample(**again, i).label(), static_cast<int64_t>(i % 4));
    }
  }
}

TEST_F(IdxDatasetTest, RebuildsDecompressedFileWhenMissingOrOutdated) {
  write("images", gzip(encoded_images(10)));
  write("labels", labels(10));
  const std::string unpacked = ".index/train.path.decompressed";
  ASSERT_TRUE(open(idx()).ok());
  EXPECT_EQ(content_of(unpacked), encoded_images(10));
  age(unpacked, -100);
  ASSERT_TRUE(open(idx()).ok());  // its modification time has changed
  const auto made = std::filesystem::last_write_time(path(unpacked));
  ASSERT_TRUE(open(idx()).ok());
  EXPECT_EQ(std::filesystem::last_write_time(path(unpacked)), made);
  std::filesystem::remove(path(unpacked));
  const auto dataset = open(idx());
  ASSERT_TRUE(dataset.ok());
  EXPECT_TRUE(read_sample(**dataset, 7).status.ok());
}

// The header of 70 images of 1 MiB, in a file that could contain them by the limits of deflate.
TEST_F(IdxDatasetTest, RejectsFileThatWouldDecompressToManyTimesItsSize) {
  const std::string header = test::big_endian(0x803) + test::big_endian(70) +
                             test::big_endian(1024) + test::big_endian(1024);
  std::string noise(100'000, '\0');
  std::mt19937 random(1);
  for (char& byte : noise) byte = static_cast<char>(random());
  write("images", gzip(header + noise));
  write("labels", labels(70));
  expect_error(idx(), StatusCode::kCorrupt,
               {path("images"), "would take 71 MiB decompressed, more than 100 times its",
                "decompress it first"});
  EXPECT_TRUE(has_no_index_files());
}

TEST_F(IdxDatasetTest, RejectsFileThatDiskCannotHoldBeforeDecompressingIt) {
  const std::string header = test::big_endian(0x803) + test::big_endian(1 << 20) +
                             test::big_endian(1 << 14) + test::big_endian(1 << 13);
  write("images", gzip(header));
  std::filesystem::resize_file(path("images"), uint64_t{3} << 40);  // sparse: 128 TiB are declared
  write("labels", labels(1 << 20));
  expect_error(idx(), StatusCode::kNoSpace,
               {path("images"), "takes 134217729 MiB", "make room, or decompress it first"});
  EXPECT_TRUE(has_no_index_files());
}

TEST_F(IdxDatasetTest, RejectsCorruptGzipFileAndLeavesNoOutput) {
  write("labels", labels(5));
  const std::string whole = gzip(encoded_images(5));
  const std::string unpacked = ".index/train.path.decompressed";
  int num_accepted = 0;
  const auto expect_rejected = [&](const std::string& file) {
    write("images", file);
    const auto dataset = open(idx());
    if (dataset.ok()) {  // decompresses to the same bytes
      ++num_accepted;
      EXPECT_EQ(content_of(unpacked), encoded_images(5));
      std::filesystem::remove_all(index_dir());
      return;
    }
    EXPECT_EQ(dataset.status().code(), StatusCode::kCorrupt) << dataset.status().to_string();
    EXPECT_THAT(dataset.status().message(), ::testing::HasSubstr(path("images")));
    EXPECT_TRUE(has_no_index_files());
  };
  for (size_t length = 0; length < whole.size(); ++length) expect_rejected(whole.substr(0, length));
  EXPECT_EQ(num_accepted, 0);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string corrupted = whole;
    corrupted[at] = static_cast<char>(corrupted[at] ^ 0x10);
    expect_rejected(corrupted);
  }
  // Time, extra flags and operating system (RFC 1952). Python's zlib accepts two more: a match repeats the
  // same bytes from elsewhere, and bits after the last block; how many there are depends on the compressor.
  EXPECT_GE(num_accepted, 6);
  EXPECT_LE(num_accepted, 10);
  expect_corrupt(whole + "x", labels(5), {path("images"), "offset "});
  expect_corrupt(whole.substr(0, whole.size() - 1), labels(5), {"truncated"});
}

TEST_F(IdxDatasetTest, RejectsInvalidGzipHeadersBeforeWriting) {
  const auto header = [](uint32_t count, uint32_t height, uint32_t width) {
    return big_endian(0x803) + big_endian(count) + big_endian(height) + big_endian(width);
  };
  expect_corrupt(gzip(header(~0u, ~0u, ~0u)), labels(5), {"more than any file can contain"});
  expect_corrupt(gzip(header(1u << 20, 28, 28)), labels(5), {"cannot hold"});
  expect_corrupt(gzip(header(6, 2, 3) + std::string(30, 'x')), labels(6), {"but there are 46"});
  expect_corrupt(gzip(header(4, 2, 3) + std::string(30, 'x')), labels(4), {"there are more"});
  expect_corrupt(gzip(labels(20)), labels(5), {"2049", "2051"});
  expect_corrupt(gzip("abc"), labels(5), {"3 bytes are too few"});
}

}  // namespace
}  // namespace stoker::data::format
