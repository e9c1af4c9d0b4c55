#include "shared/data/stream/record_decoder.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/example_writer.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/stream/stream_fixture.h"
#include "tests/shared/data/tar_writer.h"
#include "tests/shared/image/image_files.h"
#include "tests/support/numpy_files.h"

namespace stoker::data::stream {
namespace {

using data::testing::floats_feature;
using data::testing::FolderFixture;
using data::testing::ints_feature;
using data::testing::Sample;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecordDecoderTest : public FolderFixture {
 protected:
  template <typename Source>
  config::DatasetConfig config_of(const std::string& content) const {
    write("data", content);
    config::DatasetConfig config;
    config.source = Source{};
    path_in(config) = path("data");
    return config;
  }
  // With fields x and y.
  template <typename Source>
  config::DatasetConfig labeled(const std::string& content, std::vector<int64_t> shape) const {
    config::DatasetConfig config = config_of<Source>(content);
    fields_in(config).input = {"x"};
    fields_in(config).label = "y";
    record_in(config).input_shape = std::move(shape);
    record_in(config).num_classes = 4;
    return config;
  }
  static Result<std::unique_ptr<RecordDecoder>> make(const config::DatasetConfig& config) {
    const std::string name = "train";
    return RecordDecoder::make({.name = name, .config = config});
  }
  // The samples of the stream of the file; the status of those that cannot be decoded.
  std::vector<Sample> decode(const config::DatasetConfig& config,
                             std::vector<int64_t>* maybe_priorities = nullptr) const {
    std::vector<Sample> samples;
    const std::string name = "train";
    const auto framing = framing_of({.name = name, .config = config});
    auto decoder = make(config);
    auto input = open_shard(path("data"));
    EXPECT_TRUE(framing.ok() && decoder.ok() && input.ok()) << decoder.status().to_string();
    if (!framing || !decoder || !input) return samples;
    RecordStream stream(*framing, *std::move(input));
    for (StreamRecord record;;) {
      const auto more = stream.next(record, {});
      EXPECT_TRUE(more.ok()) << more.status().to_string();
      if (!more || !*more) return samples;
      decode_one(**decoder, record.bytes, samples);
      if (maybe_priorities != nullptr) maybe_priorities->push_back((*decoder)->priority());
    }
  }
  void decode_one(RecordDecoder& decoder, std::span<const std::byte> record,
                  std::vector<Sample>& samples) const {
    const auto kept = decoder.read(record);
    if (kept && !*kept) return;  // dropped
    Sample& sample = samples.emplace_back();
    sample.status = kept.status();
    if (!kept) return;
    std::vector<std::span<std::byte>> outputs;
    for (const TensorSpec& spec : decoder.spec(0))
      sample.tensors.emplace_back(spec.bytes(), std::byte{0xee});
    for (auto& tensor : sample.tensors) outputs.emplace_back(tensor);
    sample.status = decoder.write({}, outputs);
  }
  // Those of all records.
  std::vector<int64_t> priorities(const config::DatasetConfig& config) const {
    std::vector<int64_t> priorities;
    for (const auto& sample : decode(config, &priorities))
      EXPECT_TRUE(sample.status.ok()) << sample.status.to_string();
    return priorities;
  }
  // The status of the only record.
  std::string error_of(const config::DatasetConfig& config) const {
    const auto samples = decode(config);
    EXPECT_EQ(samples.size(), 1u);
    if (samples.size() != 1) return "";
    EXPECT_EQ(samples[0].status.code(), StatusCode::kCorrupt);
    return samples[0].status.message();
  }
  void expect_same_as_indexed(const config::DatasetConfig& config) const {
    const auto dataset = open(config);
    ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
    const auto decoder = make(config);
    ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
    EXPECT_EQ((*decoder)->spec(0), (*dataset)->spec());
    EXPECT_EQ((*decoder)->classes(), (*dataset)->classes());
    const auto samples = decode(config);
    ASSERT_EQ(samples.size(), (*dataset)->size());
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_TRUE(samples[i].status.ok()) << samples[i].status.to_string();
      EXPECT_EQ(samples[i].tensors, data::testing::read_sample(**dataset, i).tensors) << i;
    }
  }
};

std::string json_lines() { return "{\"x\": [1, 2], \"y\": 3}\n\n{\"y\": 0, \"x\": [0.5, -1]}\n"; }

TEST_F(RecordDecoderTest, DecodesSameJsonObjectsAsIndexedDataset) {
  expect_same_as_indexed(labeled<config::JsonlDataset>(json_lines(), {2}));
  // The shape is the number of names.
  expect_same_as_indexed(labeled<config::JsonlDataset>("{\"x\": 7, \"y\": 3}\n", {}));
}

TEST_F(RecordDecoderTest, DecodesSameExamplesAsIndexedDataset) {
  std::string frames;
  for (int64_t i = 0; i < 3; ++i)
    frames += data::testing::framed(data::testing::example(
        {{"x", floats_feature({static_cast<float>(i), 0.5f})}, {"y", ints_feature({i})}}));
  expect_same_as_indexed(labeled<config::TfrecordDataset>(frames, {2}));
}

TEST_F(RecordDecoderTest, DecodesSameTarSamplesAsIndexedDataset) {
  using data::testing::tar_member;
  std::string tar;
  for (int i = 0; i < 3; ++i) {
    const std::string key = "s" + std::to_string(i);
    tar += tar_member(key + ".x.npy", test::npy("<f4", "(2,)", test::bytes_of<float>({1.5f, -2}))) +
           tar_member(key + ".json", "{\"class\": " + std::to_string(i) + "}") +
           tar_member(key + ".unused", "something");
  }
  config::DatasetConfig config =
      labeled<config::WebdatasetDataset>(tar + data::testing::kTarEnd, {2});
  fields_in(config).input = {"x.npy"};
  fields_in(config).label = "json:class";
  expect_same_as_indexed(config);
}

class ImageStreamTest : public RecordDecoderTest {
 protected:
  // Of 3 x 4 gray pixels with their own class each.
  config::DatasetConfig images(config::Transforms transforms) const {
    const image::testing::Pixels pixels{
        .height = 3, .width = 4, .channels = 1, .samples = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
    const std::string file = image::testing::encode_png_file(pixels, {.color_type = 0});
    using data::testing::tar_member;
    config::DatasetConfig config = config_of<config::WebdatasetDataset>(
        tar_member("a.png", file) + tar_member("a.mask.png", file) + tar_member("b.png", file) +
        tar_member("b.mask.png", file) + data::testing::kTarEnd);
    fields_in(config).image = "png";
    fields_in(config).mask = "mask.png";
    record_in(config).num_classes = 12;
    transforms_in(config) = {config::Resize{{3, 4}}};
    for (auto& each : transforms) transforms_in(config).push_back(std::move(each));
    return config;
  }
  void expect_refused(config::Transforms transforms, const std::string& what) const {
    const auto decoder = make(images(std::move(transforms)));
    EXPECT_EQ(decoder.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(decoder.status().message(), HasSubstr(what));
  }
};

TEST_F(ImageStreamTest, AppliesRandomTransformsAsIndexedDataset) {
  const config::DatasetConfig flipped = images({config::RandomHorizontalFlip{.p = 1}});
  const auto samples = decode(flipped);
  ASSERT_EQ(samples.size(), 2u);
  const auto levels = samples[1].values<uint8_t>(0);
  EXPECT_THAT(std::vector(levels.begin(), levels.begin() + 12),
              ElementsAre(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8));
  EXPECT_THAT(samples[1].values<uint8_t>(1), ElementsAre(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8));
  expect_same_as_indexed(flipped);
  expect_same_as_indexed(images({config::RandAugment{}, config::RandomErasing{.p = 1}}));
}

TEST_F(ImageStreamTest, RefusesTransformsThatDoNotFitImages) {
  expect_refused({config::GaussianBlur{.kernel_size = 7}}, "gaussian_blur.kernel_size is 7");
  expect_refused({config::RandomCrop{.size = {4, 4}, .padding = 1}}, "must be that of the images");
  expect_refused({config::AugMix{}}, "aug_mix cannot be combined with a mask");
}

TEST_F(RecordDecoderTest, DecodesSameBlocksAsIndexedDataset) {
  config::DatasetConfig text = config_of<config::TextDataset>("abcdefghijkl");
  sequence_in(text).block_size = 3;
  expect_same_as_indexed(text);
  for (const auto type : {config::TokenType::kUint16, config::TokenType::kUint32}) {
    config::DatasetConfig tokens =
        config_of<config::TokensDataset>(std::string("\1\0\2\1\3\0\0\0\5\0\0\0\7\0\0\0", 16));
    source_in<config::TokensDataset>(tokens).dtype = type;
    sequence_in(tokens).block_size = 2;
    expect_same_as_indexed(tokens);
  }
}

TEST_F(RecordDecoderTest, DecodesSameSequencesAsIndexedDataset) {
  config::DatasetConfig config = config_of<config::JsonlDataset>(
      "{\"t\": [5, 6, 7], \"l\": [0, 1, -100]}\n{\"t\": [8], \"l\": [3]}\n");
  fields_in(config).input_ids = "t";
  fields_in(config).labels = "l";
  record_in(config).num_classes = 4;
  sequence_in(config).max_length = 4;
  expect_same_as_indexed(config);
}

TEST_F(RecordDecoderTest, ReportsLabelThatIsNoClass) {
  const auto with_label = [this](const std::string& label) {
    return error_of(labeled<config::JsonlDataset>("{\"x\": 1, \"y\": " + label + "}\n", {}));
  };
  EXPECT_EQ(with_label("4"), "label 'y' is 4, not below num_classes (4)");
  EXPECT_THAT(with_label("-1"), HasSubstr("label 'y' "));
  EXPECT_THAT(with_label("\"cat\""), HasSubstr("label 'y' "));
}

TEST_F(RecordDecoderTest, ReportsOrDropsRecordWithoutField) {
  config::DatasetConfig config = labeled<config::JsonlDataset>("{\"x\": 1}\n", {});
  EXPECT_EQ(error_of(config), "has no label 'y'");
  record_in(config).on_missing_field = config::OnMissingField::kDrop;
  EXPECT_EQ(decode(config).size(), 0u);
}

// ---- Priorities

TEST_F(RecordDecoderTest, ReadsPriorityOfJsonObjects) {
  config::DatasetConfig config = labeled<config::JsonlDataset>(
      "{\"x\": 1, \"y\": 3, \"meta\": {\"p\": -9223372036854775808}}\n"
      "{\"meta\": {\"p\": 9223372036854775807}, \"x\": 1, \"y\": 3}\n"
      "{\"x\": 1, \"y\": 3, \"meta\": {\"p\": \"7\"}}\n",
      {});
  EXPECT_THAT(priorities(config), ElementsAre(0, 0, 0));
  fields_in(config).priority = "meta.p";
  EXPECT_THAT(priorities(config), ElementsAre(INT64_MIN, INT64_MAX, 7));
  fields_in(config).priority = "y";  // also the label
  EXPECT_THAT(priorities(config), ElementsAre(3, 3, 3));
}

TEST_F(RecordDecoderTest, ReadsPriorityOfExamples) {
  std::string frames;
  for (int64_t i = 0; i < 3; ++i)
    frames += data::testing::framed(data::testing::example(
        {{"x", floats_feature({0.5f})}, {"y", ints_feature({i})}, {"p", ints_feature({-i})}}));
  config::DatasetConfig config = labeled<config::TfrecordDataset>(frames, {1});
  fields_in(config).priority = "p";
  EXPECT_THAT(priorities(config), ElementsAre(0, -1, -2));
}

TEST_F(RecordDecoderTest, ReadsPriorityOfTarSamples) {
  using data::testing::tar_member;
  std::string tar;
  for (int i = 0; i < 3; ++i) {
    const std::string key = "s" + std::to_string(i);
    const std::string number = std::to_string(5 - i);
    tar += tar_member(key + ".cls", "1") + tar_member(key + ".json", "{\"p\": " + number + "}") +
           tar_member(key + ".prio", "-" + number + "\n") + tar_member(key + ".x", "1.5");
  }
  config::DatasetConfig config =
      labeled<config::WebdatasetDataset>(tar + data::testing::kTarEnd, {1});
  fields_in(config).label = "cls";
  fields_in(config).priority = "json:p";
  EXPECT_THAT(priorities(config), ElementsAre(5, 4, 3));
  fields_in(config).priority = "prio";
  EXPECT_THAT(priorities(config), ElementsAre(-5, -4, -3));
}

TEST_F(RecordDecoderTest, ReadsPriorityOfSequences) {
  using data::testing::tar_member;
  config::DatasetConfig jsonl =
      config_of<config::JsonlDataset>("{\"t\": [5, 6, 7], \"p\": 9}\n{\"p\": 8, \"t\": [1]}\n");
  fields_in(jsonl).input_ids = "t";
  fields_in(jsonl).priority = "p";
  sequence_in(jsonl).max_length = 4;
  EXPECT_THAT(priorities(jsonl), ElementsAre(9, 8));
  config::DatasetConfig tar = config_of<config::WebdatasetDataset>(
      tar_member("a.json", "{\"t\": [5, 6], \"p\": 9}") + data::testing::kTarEnd);
  fields_in(tar).input_ids = "json:t";
  fields_in(tar).priority = "json:p";
  sequence_in(tar).max_length = 4;
  EXPECT_THAT(priorities(tar), ElementsAre(9));
}

TEST_F(RecordDecoderTest, MapsLabelsToClassNames) {
  config::DatasetConfig config = labeled<config::JsonlDataset>(
      "{\"x\": 1, \"y\": \"dog\"}\n{\"x\": 2, \"y\": \"cat\"}\n{\"x\": 3, \"y\": 0}\n"
      "{\"x\": 4, \"y\": \"owl\"}\n{\"x\": 5, \"y\": 2}\n",
      {});
  record_in(config).num_classes.reset();
  record_in(config).class_names = {"cat", "dog"};
  EXPECT_EQ((*make(config))->classes(), 2u);
  const auto samples = decode(config);
  ASSERT_EQ(samples.size(), 5u);
  EXPECT_EQ(samples[0].label(), 1);
  EXPECT_EQ(samples[1].label(), 0);
  EXPECT_EQ(samples[2].label(), 0);
  EXPECT_THAT(samples[3].status.message(), HasSubstr("'owl' is none of the 2 in class_names"));
  EXPECT_THAT(samples[4].status.message(), HasSubstr("'2' is none of the 2 in class_names"));
}

TEST_F(RecordDecoderTest, ReportsMemberThatIsLink) {
  using data::testing::tar_member;
  EXPECT_THAT(
      error_of(labeled<config::WebdatasetDataset>(
          tar_member("a.y", "", '1') + tar_member("a.x", "12") + data::testing::kTarEnd, {2})),
      HasSubstr("member 'y' is a link"));
}

TEST_F(RecordDecoderTest, ReportsPriorityThatIsNoInteger) {
  const auto with_priority = [this](const std::string& priority) {
    config::DatasetConfig config =
        labeled<config::JsonlDataset>("{\"x\": 1, \"y\": 1, \"p\": " + priority + "}\n", {});
    fields_in(config).priority = "p";
    return error_of(config);
  };
  const std::string expected = "priority 'p' must be one integer from -2^63 to 2^63 - 1, got ";
  EXPECT_EQ(with_priority("2.5"), expected + "2.5");
  EXPECT_EQ(with_priority("9223372036854775808"), expected + "9.223372e+18");
  EXPECT_EQ(with_priority("\"9223372036854775808\""), expected + "'9223372036854775808'");
  EXPECT_EQ(with_priority("\"high\""), expected + "'high'");
  EXPECT_EQ(with_priority("[1, 2]"), expected + "2 integers");
}

TEST_F(RecordDecoderTest, ReportsOrDropsRecordWithoutPriority) {
  config::DatasetConfig config = labeled<config::JsonlDataset>("{\"x\": 1, \"y\": 1}\n", {});
  fields_in(config).priority = "p";
  EXPECT_EQ(error_of(config), "has no priority 'p'");
  record_in(config).on_missing_field = config::OnMissingField::kDrop;
  EXPECT_EQ(decode(config).size(), 0u);
}

TEST_F(RecordDecoderTest, RejectsArrayAsPriority) {
  config::DatasetConfig config = labeled<config::WebdatasetDataset>("", {1});
  fields_in(config).priority = "p.npy";
  const Status status = make(config).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "data.train.fields.priority: 'p.npy' is an array; set it to a text or json:KEY");
}

TEST_F(RecordDecoderTest, ContinuesAfterGarbageBetweenRecords) {
  const auto samples =
      decode(labeled<config::JsonlDataset>("{\"x\": 1, \"y\": 3}\ngarbage\n"
                                           "{\"x\": 2, \"y\": 1}\n",
                                           {}));
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_TRUE(samples[0].status.ok());
  EXPECT_EQ(samples[1].status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(samples[2].values<float>(0), ElementsAre(2));
  EXPECT_EQ(samples[2].label(), 1);
}

TEST_F(RecordDecoderTest, ReportsTruncatesOrDropsLongSequence) {
  config::DatasetConfig config = config_of<config::JsonlDataset>("{\"t\": [1, 2, 3]}\n");
  fields_in(config).input_ids = "t";
  sequence_in(config).max_length = 2;
  EXPECT_EQ(error_of(config), "has 3 time steps, more than sequence.max_length (2)");
  sequence_in(config).on_overflow = config::OnOverflow::kTruncate;
  const auto truncated = decode(config);
  ASSERT_EQ(truncated.size(), 1u);
  EXPECT_TRUE(truncated[0].status.ok()) << truncated[0].status.to_string();
  EXPECT_THAT(truncated[0].values<int32_t>(0), ElementsAre(1, 2));
  EXPECT_THAT(truncated[0].values<int64_t>(1), ElementsAre(2));
  sequence_in(config).on_overflow = config::OnOverflow::kDrop;
  EXPECT_EQ(decode(config).size(), 0u);
}

TEST_F(RecordDecoderTest, WritesSequenceOfItsOwnLength) {
  config::DatasetConfig config = config_of<config::JsonlDataset>("");
  fields_in(config).input_ids = "t";
  sequence_in(config).max_length = 100;
  const auto decoder = make(config);
  ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
  const std::string record = "{\"t\": [4, 5, 6]}";
  ASSERT_TRUE((*decoder)->read(std::as_bytes(std::span(record))).ok());
  EXPECT_EQ((*decoder)->length(), 3u);
  EXPECT_EQ((*decoder)->spec(3)[0].shape, (std::vector<int64_t>{3}));
  EXPECT_EQ((*decoder)->spec(0)[0].shape, (std::vector<int64_t>{100}));
}

TEST_F(RecordDecoderTest, ReportsTokenAboveLimit) {
  config::DatasetConfig tokens =
      config_of<config::TokensDataset>(std::string("\1\0\0\0\0\0\0\x80", 8));
  source_in<config::TokensDataset>(tokens).dtype = config::TokenType::kUint32;
  sequence_in(tokens).block_size = 1;
  EXPECT_THAT(error_of(tokens), HasSubstr("token 2147483648, number 1 of the block"));
}

TEST_F(RecordDecoderTest, RejectsTarSampleWithTwoMembersOfOneExtension) {
  using data::testing::tar_member;
  config::DatasetConfig config = labeled<config::WebdatasetDataset>(
      tar_member("a.x", "1") + tar_member("a.x", "2") + data::testing::kTarEnd, {1});
  EXPECT_THAT(error_of(config), HasSubstr("has two members 'x'"));
}

TEST_F(RecordDecoderTest, RejectsTarSampleWithTooManyMembers) {
  const auto decoder = make(labeled<config::WebdatasetDataset>("", {1}));
  ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
  std::string record;
  for (int i = 0; i <= 1000; ++i) record += data::testing::tar_member("a." + std::to_string(i), "");
  const auto kept = (*decoder)->read(std::as_bytes(std::span(record)));
  EXPECT_THAT(kept.status().message(), HasSubstr("has more than 1000 members"));
}

TEST_F(RecordDecoderTest, RejectsSettingsThatNeedIndex) {
  const auto error = [](const config::DatasetConfig& config) {
    const auto decoder = make(config);
    EXPECT_EQ(decoder.status().code(), StatusCode::kInvalidArgument);
    return decoder.status().message();
  };
  config::DatasetConfig config = labeled<config::JsonlDataset>("", {});
  record_in(config).num_classes.reset();
  EXPECT_THAT(error(config), HasSubstr("data.train.num_classes: is required with stream"));
  config = config_of<config::JsonlDataset>("");
  fields_in(config).text = "t";
  sequence_in(config).block_size = 8;
  EXPECT_THAT(error(config), HasSubstr("data.train.sequence.max_length: is required"));
  EXPECT_THAT(error(config_of<config::CsvDataset>("")), HasSubstr("data.train.stream: needs"));
}

}  // namespace
}  // namespace stoker::data::stream
