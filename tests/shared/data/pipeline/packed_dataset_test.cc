#include "shared/data/pipeline/packed_dataset.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/folder_fixture.h"

namespace stoker::data::pipeline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_sample;
using testing::Sample;

std::vector<uint32_t> random_lengths(size_t count, uint32_t max_length) {
  std::mt19937 random(3);
  std::vector<uint32_t> lengths(count);
  for (uint32_t& length : lengths) length = random() % (max_length + 1);
  return lengths;
}

TEST(PackTest, AddsLongDocumentsFirstWhereLeastSpaceIsLeft) {
  // 8; 5 + 3; 4 + 2. Documents of 0 and 1 tokens are omitted.
  const Packing packing = pack(std::vector<uint32_t>{3, 5, 2, 4, 1, 8, 0}, 8);
  EXPECT_THAT(packing.ends, ElementsAre(2, 4, 5));
  EXPECT_THAT(packing.documents, ElementsAre(0, 1, 2, 3, 5));
}

TEST(PackTest, ContainsEachDocumentOnceWithinLength) {
  constexpr uint32_t kMaxLength = 50;
  const std::vector<uint32_t> lengths = random_lengths(2000, kMaxLength);
  const Packing packing = pack(lengths, kMaxLength);
  std::vector<int> uses(lengths.size());
  for (size_t sample = 0; sample < packing.ends.size(); ++sample) {
    uint64_t tokens = 0;
    for (const uint32_t document : packing.documents_of(sample)) {
      ++uses[document];
      tokens += lengths[document];
    }
    EXPECT_LE(tokens, kMaxLength);
    EXPECT_TRUE(std::ranges::is_sorted(packing.documents_of(sample)));
  }
  for (size_t document = 0; document < lengths.size(); ++document)
    EXPECT_EQ(uses[document], lengths[document] < 2 ? 0 : 1);
  // Little more than if documents could be cut.
  const uint64_t tokens = std::accumulate(lengths.begin(), lengths.end(), uint64_t{0});
  EXPECT_LE(packing.ends.size(), tokens / kMaxLength * 102 / 100);
}

TEST(PackTest, FindsNothingInShortDocuments) {
  EXPECT_THAT(pack(std::vector<uint32_t>{1, 0, 1}, 8).ends, ElementsAre());
  EXPECT_THAT(pack({}, 8).ends, ElementsAre());
}

class PackedDatasetTest : public testing::FolderFixture {
 protected:
  config::DatasetConfig ids(int64_t max_length) const {
    config::DatasetConfig config;
    config.source = config::JsonlDataset{};
    path_in(config) = path("data.jsonl");
    fields_in(config).input_ids = "ids";
    sequence_in(config).max_length = max_length;
    sequence_in(config).packing = true;
    return config;
  }
};

TEST_F(PackedDatasetTest, RestartsPositionsInEachDocument) {
  write("data.jsonl", "{\"ids\": [1, 2, 3]}\n{\"ids\": [4, 5]}\n{\"ids\": [6, 7, 8, 9, 10, 11]}\n");
  const auto dataset = opened(ids(6));
  EXPECT_EQ(dataset->spec(), (std::vector<TensorSpec>{
                                 {.name = "tokens", .dtype = DType::kI32, .shape = {6}},
                                 {.name = "position_ids", .dtype = DType::kI32, .shape = {6}}}));
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_EQ(dataset->max_length(), 0u);
  const Sample first = read_sample(*dataset, 0);
  ASSERT_TRUE(first.status.ok()) << first.status.to_string();
  EXPECT_THAT(first.values<int32_t>(0), ElementsAre(1, 2, 3, 4, 5, 0));
  EXPECT_THAT(first.values<int32_t>(1), ElementsAre(0, 1, 2, 0, 1, 0));
  const Sample second = read_sample(*dataset, 1);
  EXPECT_THAT(second.values<int32_t>(0), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(second.values<int32_t>(1), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(PackedDatasetTest, EndsEachTextWithItsEndToken) {
  write("data.jsonl", "{\"t\": \"abc\"}\n{\"t\": \"x\"}\n");
  config::DatasetConfig config = ids(7);
  fields_in(config).input_ids.clear();
  fields_in(config).text = "t";
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), 1u);
  EXPECT_EQ(read_sample(*dataset, 0).text(), std::string("abc\0x\0\0", 7));
  EXPECT_THAT(read_sample(*dataset, 0).values<int32_t>(1), ElementsAre(0, 1, 2, 3, 0, 1, 0));
}

TEST_F(PackedDatasetTest, SelectsDocumentsBeforePacking) {
  write("data.jsonl",
        "{\"ids\": [1, 2]}\n{\"ids\": [3, 4]}\n{\"ids\": [5, 6]}\n{\"ids\": [7, 8]}\n");
  config::DatasetConfig config = ids(4);
  config.skip_samples = 1;
  config.max_samples = 2;
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), 1u);
  EXPECT_THAT(read_sample(*dataset, 0).values<int32_t>(0), ElementsAre(3, 4, 5, 6));
}

TEST_F(PackedDatasetTest, IsEqualInOtherProcesses) {
  std::string lines;
  for (const uint32_t length : random_lengths(60, 9)) {
    lines += "{\"ids\": [0";
    for (uint32_t i = 1; i < length; ++i) lines += ", " + std::to_string(i);
    lines += "]}\n";
  }
  write("data.jsonl", lines);
  const auto dataset = opened(ids(9));
  const auto other = open_indexed("train", ids(9), index_dir(), dataset->fingerprint());
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  ASSERT_EQ((*other)->size(), dataset->size());
  for (uint64_t sample = 0; sample < dataset->size(); ++sample)
    EXPECT_EQ(read_sample(**other, sample).tensors, read_sample(*dataset, sample).tensors);
  config::DatasetConfig padded = ids(9);
  sequence_in(padded).packing = false;
  EXPECT_NE(opened(padded)->fingerprint(), dataset->fingerprint());
}

TEST_F(PackedDatasetTest, ReportsDocumentThatCannotBeRead) {
  write("data.jsonl", "{\"ids\": [1, 2]}\n{\"ids\": [3, -4]}\n{\"ids\": [5, 6, 7, 8]}\n");
  const auto dataset = opened(ids(4));
  const Status status = read_sample(*dataset, 0).status;
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("data.jsonl"), HasSubstr("-4")));
  EXPECT_TRUE(read_sample(*dataset, 1).status.ok());
}

TEST_F(PackedDatasetTest, RejectsDataWithoutTwoTokens) {
  write("data.jsonl", "{\"ids\": [1]}\n{\"ids\": [2]}\n");
  expect_error(ids(4), StatusCode::kInvalidArgument,
               {"data.train.sequence.packing: no document has at least two tokens"});
}

TEST_F(PackedDatasetTest, LogsShareOfPadding) {
  write("data.jsonl", "{\"ids\": [1, 2, 3]}\n{\"ids\": [4, 5]}\n{\"ids\": [6, 7, 8, 9]}\n");
  ::testing::internal::CaptureStderr();
  (void)opened(ids(5));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("sequences packed dataset=train documents=3 samples=2 padding=10.0%"));
}

}  // namespace
}  // namespace stoker::data::pipeline
