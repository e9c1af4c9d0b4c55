#include "shared/data/record/label_range_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/config/load_config.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/support/temporary_directory.h"

namespace stoker::data::record {
namespace {

using ::testing::HasSubstr;

config::Config config_of(const std::string& text) {
  const auto config = config::parse_config(text, "test.yaml", {});
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *config;
}

template <typename Number>
std::span<const std::byte> bytes(const std::vector<Number>& numbers) {
  return std::as_bytes(std::span(numbers));
}

// Checks a batch of `rows` rows with one tensor.
template <typename Number>
LabelRangeCheck::RowError verdict(const LabelRangeCheck& limits, const std::vector<Number>& numbers,
                                  size_t rows) {
  const std::vector<std::span<const std::byte>> tensors{bytes(numbers)};
  return limits.check_rows(tensors, rows);
}

constexpr const char* kLanguage = R"(data: {train: {format: tokens, path: t.bin}}
model: {name: gpt, vocab_size: 100, context_length: 3}
train: {micro_batch_size: 2}
)";
constexpr const char* kCtc =
    R"(data:
  train:
    format: jsonl
    path: a.jsonl
    fields: {input: x, labels: y}
    sequence: {max_length: 4, max_label_length: 3}
model: {name: blstm, hidden_size: 2}
task: {name: ctc}
)";

TEST(LabelRangeCheckTest, ReportsOutOfVocabTokenWithPositionAndBound) {
  const auto limits = LabelRangeCheck::of(
      config_of(kLanguage), {{.name = "tokens", .dtype = DType::kI32, .shape = {4}}}, 0);
  EXPECT_TRUE(verdict(limits, std::vector<int32_t>{0, 99, 1, 2}, 1).status.ok());
  const auto found = verdict(limits, std::vector<int32_t>{0, 99, 100, 2}, 1);
  EXPECT_EQ(found.status.code(), StatusCode::kCorrupt);
  EXPECT_EQ(found.status.message(),
            "token 100 at index 2: model.vocab_size is 100, so tokens are from 0 to 99");
  EXPECT_FALSE(verdict(limits, std::vector<int32_t>{0, -1, 0, 0}, 1).status.ok());
}

TEST(LabelRangeCheckTest, RejectsTokenizerLargerThanVocabularyOfLabeledText) {
  const std::string labeled =
      "data: {train: {format: jsonl, path: a, fields: {text: t, label: y}, tokenizer: {path: "
      "t.json}, sequence: {max_length: 9}}}\n"
      "task: {name: classification}\nmodel: {name: blstm, hidden_size: 2";
  EXPECT_EQ(check_tokenizer_size(config_of(labeled + "}\n"), 261).message(),
            "model.vocab_size is 256, but data.train.tokenizer has 261 tokens; set it to at least "
            "that");
  EXPECT_TRUE(check_tokenizer_size(config_of(labeled + ", vocab_size: 261}\n"), 261).ok());
  EXPECT_TRUE(check_tokenizer_size(config_of("data: {train: {format: text, path: t.txt, tokenizer: "
                                             "{path: t.json}}}\nmodel: {name: gpt}\n"),
                                   70000)
                  .ok());
}

TEST(LabelRangeCheckTest, ChecksTokensAgainstTokenizerIfModelHasNoVocabSize) {
  const config::Config config = config_of(
      "data: {train: {format: text, path: t.txt, tokenizer: {path: t.json}}}\n"
      "model: {name: gpt, context_length: 3}\n");
  ASSERT_EQ(config.model.vocab_size(), std::nullopt);
  const std::vector<TensorSpec> sample{{.name = "tokens", .dtype = DType::kI32, .shape = {4}}};
  const auto limits = LabelRangeCheck::of(config, sample, 50);
  EXPECT_TRUE(verdict(limits, std::vector<int32_t>{0, 49, 1, 2}, 1).status.ok());
  EXPECT_EQ(verdict(limits, std::vector<int32_t>{0, 50, 1, 2}, 1).status.message(),
            "token 50 at index 1: the vocabulary size of the tokenizer is 50, so tokens are from 0 "
            "to 49");
  EXPECT_FALSE(LabelRangeCheck::of(config, sample, 0).any());
}

TEST(LabelRangeCheckTest, ReportsFirstInvalidRowOfBatch) {
  const auto limits = LabelRangeCheck::of(
      config_of(kLanguage), {{.name = "tokens", .dtype = DType::kI32, .shape = {2}}}, 0);
  EXPECT_EQ(verdict(limits, std::vector<int32_t>{1, 2, 3, 4, 5, 6}, 3).row, 3u);
  const auto found = verdict(limits, std::vector<int32_t>{1, 2, 3, 400, 500, 6}, 3);
  EXPECT_EQ(found.row, 1u);
  EXPECT_THAT(found.status.message(), HasSubstr("token 400 at index 1"));
}

TEST(LabelRangeCheckTest, ChecksTargetTokensAgainstUserModelOutputs) {
  const std::vector<TensorSpec> sample{{.name = "tokens", .dtype = DType::kI32, .shape = {3}}};
  const auto limits = LabelRangeCheck::of(
      config_of("data: {train: {format: tokens, path: t.bin, sequence: {block_size: 2}}}\n"
                "model: {name: plugin, path: m, num_classes: 50}\n"),
      sample, 0);
  EXPECT_TRUE(verdict(limits, std::vector<int32_t>{0, 49, 1}, 1).status.ok());
  EXPECT_EQ(verdict(limits, std::vector<int32_t>{0, 1, 50}, 1).status.message(),
            "token 50 at index 2: model.num_classes is 50, so tokens are from 0 to 49");
  // Tokens that are not targets can exceed the number of outputs.
  EXPECT_FALSE(LabelRangeCheck::of(config_of(R"(data:
  train:
    format: jsonl
    path: a.jsonl
    fields: {input_ids: x, label: y}
    sequence: {max_length: 4}
task: {name: classification}
model: {name: plugin, path: m, num_classes: 50}
)"),
                                   sample, 0)
                   .any());
}

TEST(LabelRangeCheckTest, SkipsCheckOfByteTokens) {
  const auto limits = LabelRangeCheck::of(
      config_of(kLanguage), {{.name = "tokens", .dtype = DType::kU8, .shape = {4}}}, 256);
  EXPECT_FALSE(limits.any());
}

TEST(LabelRangeCheckTest, ChecksLabelsAgainstClassesAndAllowsIgnoredIndex) {
  const auto config = config_of(R"(data: {train: {format: idx, path: a, labels_path: b}}
model: {name: lenet5}
task: {name: classification}
)");
  const auto one =
      LabelRangeCheck::of(config, {{.name = "label", .dtype = DType::kI64, .shape = {}}}, 10);
  EXPECT_TRUE(verdict(one, std::vector<int64_t>{0, 9, 5}, 3).status.ok());
  const auto found = verdict(one, std::vector<int64_t>{0, 9, 10}, 3);
  EXPECT_EQ(found.row, 2u);
  EXPECT_EQ(found.status.message(), "label 10: there are 10 classes, so labels are from 0 to 9");
  EXPECT_FALSE(verdict(one, std::vector<int64_t>{-100}, 1).status.ok());
  const auto several =
      LabelRangeCheck::of(config, {{.name = "labels", .dtype = DType::kI64, .shape = {3}}}, 10);
  EXPECT_TRUE(verdict(several, std::vector<int64_t>{0, 9, -100}, 1).status.ok());
}

TEST(LabelRangeCheckTest, ChecksClassesOfPixelsAndAllowsIgnoredOnes) {
  const auto config = config_of(R"(data:
  train:
    format: webdataset
    path: a
    fields: {image: jpg, mask: png}
    num_classes: 3
    transforms: [resize: {size: [2, 2]}]
task: {name: classification}
model: {name: exported, path: m}
)");
  const auto limits =
      LabelRangeCheck::of(config, {{.name = "mask", .dtype = DType::kU8, .shape = {2, 2}}}, 3);
  EXPECT_TRUE(verdict(limits, std::vector<uint8_t>{0, 2, 255, 1}, 1).status.ok());
  const auto found = verdict(limits, std::vector<uint8_t>{0, 1, 2, 2, 0, 3, 255, 1}, 2);
  EXPECT_EQ(found.row, 1u);
  EXPECT_EQ(found.status.message(),
            "class of a pixel 3 at index 1: there are 3 classes, so classes of pixels are from 0 "
            "to 2");
  EXPECT_FALSE(verdict(limits, std::vector<uint8_t>{0, 254, 0, 1}, 1).status.ok());
}

TEST(LabelRangeCheckTest, RejectsCtcBlankAsLabel) {
  const auto limits = LabelRangeCheck::of(
      config_of(kCtc), {{.name = "labels", .dtype = DType::kI64, .shape = {3}}}, 5);
  EXPECT_TRUE(verdict(limits, std::vector<int64_t>{1, 4, -100}, 1).status.ok());
  EXPECT_EQ(
      verdict(limits, std::vector<int64_t>{1, 0, -100}, 1).status.message(),
      "label 0 at index 1: there are 5 classes, of which 0 is the blank, so labels are from 1 "
      "to 4");
}

// A dataset of these tokens in `folder`, with the configuration kLanguage; null if it cannot be
// opened.
std::unique_ptr<Dataset> set_of(const std::vector<uint16_t>& tokens,
                                const test::TemporaryDirectory& folder) {
  EXPECT_TRUE(write_file_atomically(
                  default_file_system(), folder / "t.bin",
                  {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(uint16_t)})
                  .ok());
  auto config = config_of(kLanguage);
  std::get<config::TokensDataset>(config.data.at("train").source).path = folder / "t.bin";
  auto opened = pipeline::open_dataset("train", config.data, folder / "index", {});
  EXPECT_TRUE(opened.ok()) << opened.status().to_string();
  return opened.ok() ? with_range_check(config, *std::move(opened)) : nullptr;
}

TEST(LabelRangeCheckTest, ReportsSampleErrorWithFileAndOffset) {
  const test::TemporaryDirectory folder;
  const std::vector<uint16_t> tokens{1, 2, 3, 4, 5, 600, 7};
  const auto data = set_of(tokens, folder);
  ASSERT_NE(data, nullptr);
  std::vector<std::byte> memory(data->spec().front().bytes());
  const std::vector<std::span<std::byte>> out{memory};
  EXPECT_TRUE(data->read(0, {}, out).ok());
  const Status rejected = data->read(1, {}, out);
  EXPECT_EQ(rejected.code(), StatusCode::kCorrupt);
  EXPECT_THAT(rejected.message(), HasSubstr("t.bin: the sample at offset 6: token 600 at index 2"));
}

TEST(LabelRangeCheckTest, AcceptsBatchUpToFirstInvalidSample) {
  const test::TemporaryDirectory folder;
  // A sample is three tokens and the next one; token 7 is the second of sample 2.
  std::vector<uint16_t> tokens(13, 5);
  tokens[7] = 600;
  const auto data = set_of(tokens, folder);
  ASSERT_NE(data, nullptr);
  const auto read = [&](const std::vector<uint64_t>& samples) {
    std::vector<SampleReadRequest> reads;
    for (const uint64_t sample : samples) reads.push_back({.sample = sample, .random_key = {}});
    std::vector<std::byte> memory(data->spec().front().bytes() * samples.size());
    const std::vector<std::span<std::byte>> rows{memory};
    return data->read_batch(reads, rows);
  };
  EXPECT_EQ(read({0, 1, 3}).good, 3u);
  EXPECT_TRUE(read({0, 1, 3}).status.ok());
  const BatchReadResult some = read({1, 3, 2, 0});
  EXPECT_EQ(some.good, 2u);
  EXPECT_THAT(some.status.message(), HasSubstr("offset 12: token 600 at index 1"));
  EXPECT_EQ(read({2}).good, 0u);
}

}  // namespace
}  // namespace stoker::data::record
