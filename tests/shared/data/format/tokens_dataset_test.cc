#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/folder_fixture.h"

namespace stoker::data::format {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_sample;

template <typename T>
std::string little_endian(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class TokensDatasetTest : public testing::FolderFixture {
 protected:
  config::DatasetConfig tokens(config::TokenType dtype,
                               const std::string& name = "data.bin") const {
    config::DatasetConfig config;
    config.source = config::TokensDataset{};
    path_in(config) = path(name);
    sequence_in(config).block_size = 2;
    source_in<config::TokensDataset>(config).dtype = dtype;
    return config;
  }
};

TEST_F(TokensDatasetTest, ConvertsUint16ToInt32) {
  write("data.bin", little_endian<uint16_t>({1, 2, 65535, 4, 5}));
  const auto dataset = open(tokens(config::TokenType::kUint16));
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ((*dataset)->size(), 2u);
  EXPECT_EQ((*dataset)->spec()[0],
            (TensorSpec{.name = "tokens", .dtype = DType::kI32, .shape = {3}}));
  EXPECT_THAT(read_sample(**dataset, 0).values<int32_t>(0), ElementsAre(1, 2, 65535));
  EXPECT_THAT(read_sample(**dataset, 1).values<int32_t>(0), ElementsAre(65535, 4, 5));
  EXPECT_EQ((*dataset)->source(1).offset, 4u);
}

TEST_F(TokensDatasetTest, ReadsUint32FromSeveralFiles) {
  write("data/1.bin", little_endian<uint32_t>({1, 2, 3, 100000}));
  write("data/2.bin", little_endian<uint32_t>({5, 0x7fffffff, 7}));
  write("data/readme.txt", "odd");
  const auto dataset = open(tokens(config::TokenType::kUint32, "data"));
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ((*dataset)->size(), 3u);
  EXPECT_THAT(read_sample(**dataset, 1).values<int32_t>(0), ElementsAre(3, 100000, 5));
  EXPECT_THAT(read_sample(**dataset, 2).values<int32_t>(0), ElementsAre(5, 0x7fffffff, 7));
}

TEST_F(TokensDatasetTest, ReportsOutOfRangeTokenWithFileAndOffset) {
  write("data.bin", little_endian<uint32_t>({1, 2, 3, 0x80000000, 5}));
  const auto dataset = open(tokens(config::TokenType::kUint32));
  ASSERT_TRUE(dataset.ok());
  EXPECT_TRUE(read_sample(**dataset, 0).status.ok());
  const Status status = read_sample(**dataset, 1).status;
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr(path("data.bin")));
  EXPECT_THAT(status.message(), HasSubstr("offset 12"));
}

TEST_F(TokensDatasetTest, SplitsByToken) {
  std::vector<uint16_t> values;
  for (uint16_t i = 0; i < 100; ++i) values.push_back(i);
  write("data.bin", little_endian(values));
  auto config = tokens(config::TokenType::kUint16);
  config.split = {0.5, 1};
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ((*dataset)->size(), 24u);
  EXPECT_THAT(read_sample(**dataset, 0).values<int32_t>(0), ElementsAre(50, 51, 52));
}

TEST_F(TokensDatasetTest, RejectsPartialTokenShortFileAndUnknownDtype) {
  write("data.bin", "12345");
  expect_error(tokens(config::TokenType::kUint16), StatusCode::kCorrupt,
               {path("data.bin"), "5 bytes"});
  write("data.bin", "1234");
  expect_error(tokens(config::TokenType::kUint16), StatusCode::kInvalidArgument, {"2 tokens"});
  write("data.bin", "");
  expect_error(tokens(config::TokenType::kUint16), StatusCode::kInvalidArgument, {"0 tokens"});
}

// As numpy.save() writes it.
TEST_F(TokensDatasetTest, RejectsFileOfOtherKind) {
  write("data.bin", std::string("\x93NUMPY\1\0v\0{'descr': '<u2'}", 25) + std::string(101, ' '));
  expect_error(tokens(config::TokenType::kUint16), StatusCode::kCorrupt,
               {path("data.bin"), "is an .npy file", "tofile()"});
}

// Ids of a vocabulary of 50257, as astype(...).tofile() of numpy writes them.
TEST_F(TokensDatasetTest, RejectsIdsOfOtherWidth) {
  std::vector<uint16_t> narrow;
  std::vector<uint32_t> wide;
  std::vector<int64_t> widest;
  for (uint32_t i = 0; i < 1000; ++i) {
    const uint32_t id = i * 7919 % 50257;
    narrow.push_back(static_cast<uint16_t>(id));
    wide.push_back(id);
    widest.push_back(id);
  }
  const auto uint16 = tokens(config::TokenType::kUint16),
             uint32 = tokens(config::TokenType::kUint32);
  write("data.bin", little_endian(narrow));
  EXPECT_TRUE(open(uint16).ok());
  expect_error(uint32, StatusCode::kCorrupt,
               {path("data.bin"), "not plausible as uint32", "as uint16; set data.train.dtype"});
  write("data.bin", little_endian(wide));
  EXPECT_TRUE(open(uint32).ok());
  expect_error(uint16, StatusCode::kCorrupt, {"not plausible as uint16", "as uint32"});
  for (uint32_t& id : wide) id *= 3;  // a vocabulary of 150,000
  write("data.bin", little_endian(wide));
  expect_error(uint16, StatusCode::kCorrupt, {"not plausible as uint16", "as uint32"});
  write("data.bin", little_endian(widest));
  expect_error(uint16, StatusCode::kCorrupt, {"as int64; write them as uint16 or uint32"});
  expect_error(uint32, StatusCode::kCorrupt, {"as int64; write them as uint16 or uint32"});
}

// As astype('>u2'), astype('>u4'), astype('f4') of numpy write them.
TEST_F(TokensDatasetTest, RejectsIdsOfOtherByteOrderAndFloats) {
  std::vector<uint32_t> ids, swapped;
  std::vector<uint16_t> bytes;
  std::vector<float> floats;
  for (uint32_t i = 0; i < 1000; ++i) {
    ids.push_back(i * 7919 % 50257);
    swapped.push_back(__builtin_bswap32(ids.back()));
    bytes.push_back(static_cast<uint16_t>(ids.back() % 250 << 8));
    floats.push_back(static_cast<float>(ids.back()));
  }
  const auto uint16 = tokens(config::TokenType::kUint16),
             uint32 = tokens(config::TokenType::kUint32);
  const std::vector<std::string> big{"but they are as big-endian", "astype('<u4') and tofile()"};
  write("data.bin", little_endian(swapped));
  for (const auto& config : {uint16, uint32}) expect_error(config, StatusCode::kCorrupt, big);
  write("data.bin", little_endian(bytes));
  expect_error(uint16, StatusCode::kCorrupt, big);
  write("data.bin", std::string(reinterpret_cast<const char*>(floats.data()), 4 * floats.size()));
  for (const auto& config : {uint16, uint32})
    expect_error(config, StatusCode::kCorrupt, {"but they are as float32", "astype('<u2')"});
  for (uint32_t& id : ids) id %= 200;  // of bytes
  write("data.bin", little_endian(ids));
  EXPECT_TRUE(open(uint32).ok());
  expect_error(uint16, StatusCode::kCorrupt, {"as uint32; set data.train.dtype"});
}

TEST_F(TokensDatasetTest, AcceptsIdsOfSmallVocabularies) {
  for (const uint16_t size : {2, 10, 65}) {
    std::vector<uint16_t> ids;
    for (uint16_t i = 0; i < 1000; ++i) ids.push_back(static_cast<uint16_t>(i * 31 / 7 % size));
    write("data.bin", little_endian(ids));
    EXPECT_TRUE(open(tokens(config::TokenType::kUint16)).ok()) << size;
  }
}

}  // namespace
}  // namespace stoker::data::format
