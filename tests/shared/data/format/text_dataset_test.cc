#include <string>

#include <gtest/gtest.h>

#include "tests/shared/data/folder_fixture.h"

namespace stoker::data::format {
namespace {

using testing::read_sample;

class TextDatasetTest : public testing::FolderFixture {
 protected:
  config::DatasetConfig text(int64_t context, std::vector<double> split = {0, 1}) const {
    config::DatasetConfig config;
    path_in(config) = path("data");
    sequence_in(config).block_size = context;
    config.split = std::move(split);
    return config;
  }
};

TEST_F(TextDatasetTest, ReturnsBlocksThatOverlapByOneByte) {
  write("data", "abcdefghij");
  const auto dataset = open(text(3));
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ((*dataset)->size(), 3u);
  EXPECT_EQ((*dataset)->classes(), 256u);
  ASSERT_EQ((*dataset)->spec().size(), 1u);
  EXPECT_EQ((*dataset)->spec()[0],
            (TensorSpec{.name = "tokens", .dtype = DType::kU8, .shape = {4}}));
  EXPECT_EQ(read_sample(**dataset, 0).text(), "abcd");
  EXPECT_EQ(read_sample(**dataset, 1).text(), "defg");
  EXPECT_EQ(read_sample(**dataset, 2).text(), "ghij");
}

TEST_F(TextDatasetTest, ContinuesBlocksAcrossFiles) {
  write("data/1", "ab");
  write("data/2", "");
  write("data/3", "c");
  write("data/4", "defgh");
  const auto dataset = open(text(3));
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ((*dataset)->size(), 2u);
  EXPECT_EQ(read_sample(**dataset, 0).text(), "abcd");
  EXPECT_EQ(read_sample(**dataset, 1).text(), "defg");
  EXPECT_EQ((*dataset)->source(0).file, path("data/1"));
  EXPECT_EQ((*dataset)->source(0).offset, 0u);
  EXPECT_EQ((*dataset)->source(1).file, path("data/4"));
  EXPECT_EQ((*dataset)->source(1).offset, 0u);
}

TEST_F(TextDatasetTest, SplitsWithoutSharedOrMissingBytes) {
  std::string content;
  for (int i = 0; i < 100; ++i) content += static_cast<char>(' ' + i);
  write("data", content);
  const auto train = open(text(1, {0, 0.29})), valid = open(text(1, {0.29, 1}), "val");
  ASSERT_TRUE(train.ok() && valid.ok());
  EXPECT_EQ((*train)->size(), 28u);  // 29 bytes
  EXPECT_EQ((*valid)->size(), 70u);  // 71 bytes
  EXPECT_EQ(read_sample(**train, 27).text(), content.substr(27, 2));
  EXPECT_EQ(read_sample(**valid, 0).text(), content.substr(29, 2));
  EXPECT_EQ(read_sample(**valid, 69).text(), content.substr(98, 2));
}

TEST_F(TextDatasetTest, RequiresOneCompleteBlock) {
  write("data", "abcd");
  EXPECT_EQ((*open(text(3)))->size(), 1u);
  expect_error(text(4), StatusCode::kInvalidArgument,
               {"data.train.path", "4 bytes", "block_size + 1 = 5"});
}

TEST_F(TextDatasetTest, RejectsEmptyFile) {
  write("data", "");
  expect_error(text(4), StatusCode::kInvalidArgument, {"0 bytes"});
}

TEST_F(TextDatasetTest, RejectsHugeBlockSizeWithoutAllocation) {
  write("data", "abcd");
  expect_error(text(INT64_MAX), StatusCode::kInvalidArgument, {"data.train.sequence.block_size"});
  expect_error(text(-1), StatusCode::kInvalidArgument, {"data.train.sequence.block_size"});
}

TEST_F(TextDatasetTest, ReadsOnlyFilesMatchedByGlob) {
  write("data/a.h", "aaaa");
  write("data/b.cc", "bbbb");
  write("data/c.h", "cccc");
  auto config = text(7);
  glob_in(config) = "**/*.h";
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ(read_sample(**dataset, 0).text(), "aaaacccc");
  glob_in(config) = "*.py";
  expect_error(config, StatusCode::kNotFound, {"'*.py'"});
}

// As a download into a file of its final size leaves it when it is interrupted.
TEST_F(TextDatasetTest, RejectsTextThatEndsInZeros) {
  std::string words;
  while (words.size() < 20'000) words += "some words ";
  write("data/a.txt", words);
  EXPECT_NE(opened(text(4)), nullptr);
  write("data/a.txt", words + std::string(20'000, '\0'));
  expect_error(text(4), StatusCode::kCorrupt,
               {path("data/a.txt"), "begins as text and ends with control characters"});
}

TEST_F(TextDatasetTest, RejectsAnyFileThatIsNoText) {
  auto config = text(3);
  glob_in(config) = "*";
  write("data/a.txt", "some text");
  write("data/b.txt", "some more text");
  EXPECT_TRUE(open(config).ok());
  write("data/c.gz", "\x1f\x8b\x08 packed");
  expect_error(config, StatusCode::kCorrupt, {"data.train.path", path("data/c.gz"), "gunzip"});
  write("data/c.gz", std::string("h\0i\0 \0t\0h\0e\0r\0e\0", 16));
  expect_error(config, StatusCode::kCorrupt, {path("data/c.gz"), "is UTF-16"});
}

}  // namespace
}  // namespace stoker::data::format
