// Variable-length sequences in JSON Lines.
#include <string>

#include <gtest/gtest.h>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/sequence_fixture.h"

namespace stoker::data::record {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_sample;
using testing::Sample;
using ::testing::SizeIs;

class SequenceDatasetTest : public testing::SequenceFixture {
 protected:
  config::DatasetConfig jsonl(int64_t max_length) const {
    config::DatasetConfig config;
    config.source = config::JsonlDataset{};
    path_in(config) = path("data.jsonl");
    if (max_length > 0) sequence_in(config).max_length = max_length;
    return config;
  }
  config::DatasetConfig numbers(int64_t max_length) const {
    config::DatasetConfig config = jsonl(max_length);
    fields_in(config).input = {"x"};
    fields_in(config).label = "y";
    return config;
  }
  config::DatasetConfig tagged(int64_t max_length) const {
    config::DatasetConfig config = jsonl(max_length);
    fields_in(config).input_ids = "ids";
    fields_in(config).labels = "tags";
    return config;
  }
  config::DatasetConfig text(int64_t max_length) const {
    config::DatasetConfig config = jsonl(max_length);
    fields_in(config).text = "t";
    return config;
  }
};

TEST_F(SequenceDatasetTest, PadsNumbersWithZerosAndReturnsLength) {
  write("data.jsonl", "{\"x\": [[1, 2], [3, 4], [5, 6]], \"y\": 1}\n{\"x\": [7, 8], \"y\": 0}\n");
  auto config = numbers(4);
  record_in(config).input_shape = {2};
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->spec(),
            (std::vector<TensorSpec>{{.name = "input", .dtype = DType::kF32, .shape = {4, 2}},
                                     {.name = "length", .dtype = DType::kI64, .shape = {}},
                                     {.name = "label", .dtype = DType::kI64, .shape = {}}}));
  EXPECT_EQ(dataset->max_length(), 4u);
  EXPECT_EQ(dataset->classes(), 2u);
  const Sample first = read_sample(*dataset, 0);
  EXPECT_THAT(first.values<float>(0), ElementsAre(1, 2, 3, 4, 5, 6, 0, 0));
  EXPECT_THAT(first.values<int64_t>(1), ElementsAre(3));
  EXPECT_THAT(first.values<int64_t>(2), ElementsAre(1));
  const Sample second = read_sample(*dataset, 1);
  EXPECT_THAT(second.values<float>(0), ElementsAre(7, 8, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(dataset->length(0), 3u);
  EXPECT_EQ(dataset->length(1), 1u);
}

TEST_F(SequenceDatasetTest, ReadsPlainNumbersAsOneFeaturePerTimeStep) {
  write("data.jsonl", "{\"x\": [1.5, 2], \"y\": \"b\"}\n{\"x\": 4, \"y\": \"a\"}\n");
  const auto dataset = opened(numbers(3));
  EXPECT_EQ(dataset->spec()[0].shape, (std::vector<int64_t>{3, 1}));
  EXPECT_THAT(dataset->class_names(), ElementsAre("a", "b"));
  EXPECT_THAT(read_sample(*dataset, 0).values<float>(0), ElementsAre(1.5, 2, 0));
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(0), ElementsAre(4, 0, 0));
}

TEST_F(SequenceDatasetTest, PadsOnlyToRequestedLength) {
  write("data.jsonl", "{\"x\": [1, 2, 3, 4, 5], \"y\": 0}\n{\"x\": [6, 7], \"y\": 1}\n");
  const auto dataset = opened(numbers(5));
  EXPECT_EQ(dataset->spec_of_length(3)[0].shape, (std::vector<int64_t>{3, 1}));
  EXPECT_TRUE(dataset->spec_of_length(3)[1].shape.empty());
  const Sample read = read_in_batch(*dataset, 1, 3);
  ASSERT_TRUE(read.status.ok());
  EXPECT_THAT(read.values<float>(0), ElementsAre(6, 7, 0));
  EXPECT_THAT(read_in_batch(*dataset, 1, 2).values<float>(0), ElementsAre(6, 7));
}

TEST_F(SequenceDatasetTest, AppendsEndTokenToText) {
  write("data.jsonl", "{\"t\": \"ab\"}\n{\"t\": \"\\u00fc\"}\n");
  const auto dataset = opened(text(5));
  ASSERT_THAT(dataset->spec(), SizeIs(2));
  EXPECT_EQ(dataset->spec()[0], (TensorSpec{"tokens", DType::kU8, {5}}));
  EXPECT_EQ(dataset->classes(), 256u);
  EXPECT_EQ(read_sample(*dataset, 0).text(), std::string("ab\0\0\0", 5));
  EXPECT_THAT(read_sample(*dataset, 0).values<int64_t>(1), ElementsAre(3));
  EXPECT_EQ(read_sample(*dataset, 1).text(), std::string("\xc3\xbc\0\0\0", 5));
}

TEST_F(SequenceDatasetTest, OmitsEndTokenOfTextWithLabel) {
  write("data.jsonl", "{\"t\": \"ab\", \"y\": 3}\n");
  auto config = text(3);
  fields_in(config).label = "y";
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->classes(), 4u);
  EXPECT_THAT(read_sample(*dataset, 0).values<int64_t>(1), ElementsAre(2));
}

TEST_F(SequenceDatasetTest, PadsPerStepLabelsWithIgnoredIndex) {
  write("data.jsonl",
        "{\"ids\": [70000, 1, 2], \"tags\": [0, -100, 4]}\n{\"ids\": [5], \"tags\": [1]}\n");
  const auto dataset = opened(tagged(4));
  EXPECT_EQ(dataset->spec()[0], (TensorSpec{"tokens", DType::kI32, {4}}));
  EXPECT_EQ(dataset->spec()[2], (TensorSpec{"labels", DType::kI64, {4}}));
  EXPECT_EQ(dataset->classes(), 5u);
  const Sample first = read_sample(*dataset, 0);
  EXPECT_THAT(first.values<int32_t>(0), ElementsAre(70000, 1, 2, 0));
  EXPECT_THAT(first.values<int64_t>(2), ElementsAre(0, -100, 4, -100));
  const Sample second = read_in_batch(*dataset, 1, 2);
  EXPECT_THAT(second.values<int32_t>(0), ElementsAre(5, 0));
  EXPECT_THAT(second.values<int64_t>(2), ElementsAre(1, -100));
}

TEST_F(SequenceDatasetTest, AllowsLabelsOfOtherLengthWithMaxLabelLength) {
  write("data.jsonl", "{\"x\": [1, 2, 3], \"y\": [2, 2]}\n{\"x\": [1], \"y\": [0, 1, 2]}\n");
  auto config = jsonl(3);
  fields_in(config).input = {"x"};
  fields_in(config).labels = "y";
  sequence_in(config).max_label_length = 3;
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->spec_of_length(1)[2].shape, (std::vector<int64_t>{3}));
  EXPECT_THAT(read_sample(*dataset, 0).values<int64_t>(2), ElementsAre(2, 2, -100));
  EXPECT_THAT(read_in_batch(*dataset, 1, 1).values<int64_t>(2), ElementsAre(0, 1, 2));
  sequence_in(config).max_label_length = 2;
  expect_error(config, StatusCode::kCorrupt,
               {"line 2", "has 3 labels, more than data.train.sequence.max_label_length (2)"});
  sequence_in(config).on_overflow = config::OnOverflow::kDrop;
  EXPECT_EQ(opened(config)->size(), 1u);
}

// Whose tensors have their own length, whatever the batch is padded to.
TEST_F(SequenceDatasetTest, ReadsListsOfSequence) {
  write("data.jsonl",
        "{\"x\": [1, 2, 3], \"y\": 1, \"m\": [0.5, 1, 2]}\n{\"x\": [7], \"y\": 0, \"m\": [3]}\n");
  auto config = numbers(6);
  fields_in(config).lists = {{.name = "m", .max_length = 4, .padding_value = -1}};
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->spec()[3], (TensorSpec{.name = "m", .dtype = DType::kF32, .shape = {4}}));
  EXPECT_THAT(read_sample(*dataset, 0).values<float>(3), ElementsAre(0.5F, 1, 2, -1));
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(3), ElementsAre(3, -1, -1, -1));
}

TEST_F(SequenceDatasetTest, ReadsTargetsOfSequence) {
  write("data.jsonl", "{\"x\": [1, 2], \"u\": 3, \"v\": 0.5}\n");
  auto config = jsonl(2);
  fields_in(config).input = {"x"};
  fields_in(config).target = {"u", "v"};
  EXPECT_THAT(read_sample(*opened(config), 0).values<float>(2), ElementsAre(3, 0.5));
}

TEST_F(SequenceDatasetTest, RejectsTruncatesOrDropsLongSequences) {
  write("data.jsonl",
        "{\"x\": [1, 2, 3], \"y\": 0}\n{\"x\": [4], \"y\": 1}\n{\"x\": [5, 6, 7, 8], \"y\": 1}\n");
  auto config = numbers(2);
  expect_error(config, StatusCode::kCorrupt,
               {"line 1 at offset 0", "has 3 time steps",
                "2 of 3 are longer than data.train.sequence.max_length (2)",
                "data.train.sequence.on_overflow"});
  sequence_in(config).on_overflow = config::OnOverflow::kTruncate;
  const auto cut = opened(config);
  ASSERT_EQ(cut->size(), 3u);
  EXPECT_THAT(read_sample(*cut, 2).values<float>(0), ElementsAre(5, 6));
  EXPECT_THAT(read_sample(*cut, 2).values<int64_t>(1), ElementsAre(2));
  EXPECT_EQ(cut->length(2), 2u);
  sequence_in(config).on_overflow = config::OnOverflow::kDrop;
  const auto left = opened(config);
  ASSERT_EQ(left->size(), 1u);
  EXPECT_THAT(read_sample(*left, 0).values<float>(0), ElementsAre(4, 0));
  EXPECT_NE(left->fingerprint(), cut->fingerprint());
  sequence_in(config).max_length = 2;
  write("data.jsonl", "{\"x\": [1, 2, 3], \"y\": 0}\n");
  age("data.jsonl", 5);
  expect_error(config, StatusCode::kInvalidArgument, {"1 of 1 are longer"});
}

TEST_F(SequenceDatasetTest, OmitsEndTokenOfTruncatedText) {
  write("data.jsonl", "{\"t\": \"abcd\"}\n{\"t\": \"abc\"}\n");
  auto config = text(4);
  sequence_in(config).on_overflow = config::OnOverflow::kTruncate;
  const auto dataset = opened(config);
  EXPECT_EQ(read_sample(*dataset, 0).text(), "abcd");
  EXPECT_EQ(read_sample(*dataset, 1).text(), std::string("abc\0", 4));
  EXPECT_THAT(read_sample(*dataset, 1).values<int64_t>(1), ElementsAre(4));
}

TEST_F(SequenceDatasetTest, TruncatesLabelsWithSequence) {
  write("data.jsonl", "{\"ids\": [1, 2, 3], \"tags\": [0, 1, 2]}\n");
  auto config = tagged(2);
  sequence_in(config).on_overflow = config::OnOverflow::kTruncate;
  EXPECT_THAT(read_sample(*opened(config), 0).values<int64_t>(2), ElementsAre(0, 1));
}

TEST_F(SequenceDatasetTest, TreatsEmptySequenceAsMissing) {
  write("data.jsonl", "{\"t\": \"a\"}\n{\"t\": \"\"}\n");
  auto config = text(4);
  expect_error(config, StatusCode::kCorrupt,
               {"line 2", "has no text 't'", "1 of 2 are incomplete"});
  record_in(config).on_missing_field = config::OnMissingField::kDrop;
  EXPECT_EQ(opened(config)->size(), 1u);
  write("data.jsonl", "{\"x\": [], \"y\": 1}\n{\"x\": [2], \"y\": 1}\n");
  expect_error(numbers(4), StatusCode::kCorrupt, {"line 1", "has no input 'x'"});
}

TEST_F(SequenceDatasetTest, RejectsInvalidSequenceWithLocation) {
  auto rows = numbers(4);
  record_in(rows).input_shape = {2};
  write("data.jsonl", "{\"x\": [1, 2], \"y\": 0}\n{\"x\": [1, 2, 3], \"y\": 0}\n");
  expect_error(rows, StatusCode::kCorrupt,
               {"line 2 at offset 22", "input 'x' has 3 numbers", "not a multiple of the 2"});
  write("data.jsonl", "{\"x\": [[1], [2, 3, 4]], \"y\": 0}\n");
  expect_error(rows, StatusCode::kCorrupt,
               {"line 1", "'x' must be lists of 2 numbers each, got one of 1 after 0"});
  write("data.jsonl", "{\"x\": [1, [2, 3], 4], \"y\": 0}\n");
  expect_error(rows, StatusCode::kCorrupt,
               {"line 1", "'x' must be lists of 2 numbers each, got one of 2 after 1"});
  write("data.jsonl", "{\"x\": \"1 2\", \"y\": 0}\n");
  expect_error(rows, StatusCode::kCorrupt, {"input 'x' must be a list of numbers, got 3 bytes"});
  write("data.jsonl", "{\"ids\": [1, 2.5], \"tags\": [0, 0]}\n");
  expect_error(tagged(4), StatusCode::kCorrupt,
               {"input_ids 'ids' must be a list of integers, got 2 numbers"});
  write("data.jsonl", "{\"ids\": [1, 2], \"tags\": [0]}\n");
  expect_error(tagged(4), StatusCode::kCorrupt,
               {"labels 'tags' has 1 labels for the 2 time steps of ids"});
  write("data.jsonl", "{\"ids\": [1, 2], \"tags\": [0, -1]}\n");
  expect_error(tagged(4), StatusCode::kCorrupt, {"labels 'tags' must be classes from 0 to "});
  write("data.jsonl", "{\"ids\": [1], \"tags\": [-100]}\n");
  expect_error(tagged(4), StatusCode::kInvalidArgument, {"data.train.fields.labels", "only -100"});
  write("data.jsonl", "{\"t\": [1]}\n");
  expect_error(text(4), StatusCode::kCorrupt, {"text 't' must be text, got 1 integer"});
}

TEST_F(SequenceDatasetTest, ReportsSampleErrorOnInvalidTokensOrLabels) {
  write("data.jsonl",
        "{\"ids\": [1, -2], \"tags\": [0, 0]}\n{\"ids\": [2147483648], \"tags\": [0]}\n"
        "{\"ids\": [1], \"tags\": [0]}\n");
  const auto dataset = opened(tagged(2));
  EXPECT_EQ(read_sample(*dataset, 0).status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(
      read_sample(*dataset, 0).status.message(),
      HasSubstr("line 1 at offset 0: input_ids 'ids' must be tokens from 0 to 2147483647, got -2"));
  EXPECT_THAT(read_sample(*dataset, 1).status.message(), HasSubstr("got 2147483648"));
}

// The file changes after indexing, but its size and modification time do not.
TEST_F(SequenceDatasetTest, ReportsSampleErrorWhenLengthDiffersFromIndex) {
  const auto lie = [this](const std::string& before, const std::string& after) {
    write("data.jsonl", before);
    const auto time = std::filesystem::last_write_time(path("data.jsonl"));
    const auto dataset = opened(tagged(4));
    EXPECT_EQ(before.size(), after.size());
    write("data.jsonl", after);
    std::filesystem::last_write_time(path("data.jsonl"), time);
    return read_in_batch(*dataset, 0, dataset->length(0)).status;
  };
  EXPECT_THAT(
      lie("{\"ids\": [123], \"tags\": [9]}\n", "{\"ids\": [1,2], \"tags\": [9]}\n").message(),
      HasSubstr("'ids' has a different length than when the file was indexed"));
  age("data.jsonl", 5);
  EXPECT_THAT(
      lie("{\"ids\": [1,2], \"tags\": [1,1]}\n", "{\"ids\": [1,2], \"tags\": [111]}\n").message(),
      HasSubstr("a different number of labels"));
  age("data.jsonl", 10);
  EXPECT_THAT(
      lie("{\"ids\": [1,2], \"tags\": [1,1]}\n", "{\"ids\": [1,2], \"tags\": [1,2]}\n").message(),
      HasSubstr("has label 2, which did not exist"));
}

TEST_F(SequenceDatasetTest, ReturnsLengthsOfSelectedRange) {
  write("data.jsonl", "{\"t\": \"a\"}\n{\"t\": \"ab\"}\n{\"t\": \"abc\"}\n{\"t\": \"abcd\"}\n");
  auto config = text(8);
  config.split = {0.25, 1.0};
  config.skip_samples = 1;
  config.max_samples = 1;
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), 1u);
  EXPECT_EQ(dataset->length(0), 4u);
  EXPECT_EQ(dataset->max_length(), 8u);
  EXPECT_EQ(dataset->spec_of_length(6)[0].shape, (std::vector<int64_t>{6}));
  EXPECT_EQ(read_sample(*dataset, 0).text().substr(0, 4), std::string("abc\0", 4));
}

TEST_F(SequenceDatasetTest, ReturnsFixedLengthWithoutMaxLength) {
  write("data.jsonl", "{\"x\": [1, 2], \"y\": 0}\n");
  auto config = numbers(0);
  record_in(config).input_shape = {2};
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->max_length(), 0u);
  EXPECT_EQ(dataset->length(0), 0u);
  EXPECT_EQ(dataset->spec_of_length(1), dataset->spec());
}

}  // namespace
}  // namespace stoker::data::record
