#include <string>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/example_writer.h"
#include "tests/shared/data/folder_fixture.h"

namespace stoker::data::format {
namespace {

using testing::bytes_feature;
using ::testing::ElementsAre;
using testing::example;
using testing::floats_feature;
using testing::framed;
using ::testing::HasSubstr;
using testing::ints_feature;
using testing::message;
using testing::read_sample;
using testing::Sample;

const std::string kGoldenDir = std::string(STOKER_SOURCE_DIR) + "/tests/shared/data/format/golden";

class TfrecordDatasetTest : public testing::FolderFixture {
 protected:
  config::DatasetConfig tfrecord() const {
    config::DatasetConfig config;
    config.source = config::TfrecordDataset{};
    path_in(config) = path("data.tfrecord");
    fields_in(config).input = {"x"};
    record_in(config).input_shape = {2};
    fields_in(config).label = "y";
    return config;
  }
  static config::DatasetConfig golden(std::vector<std::string> input) {
    config::DatasetConfig config;
    config.source = config::TfrecordDataset{};
    path_in(config) = kGoldenDir;
    glob_in(config) = "golden-{00000..00001}-of-00002.tfrecord";
    fields_in(config).input = std::move(input);
    fields_in(config).label = "image/class/label";
    return config;
  }
  static std::string record(int64_t i) {
    return framed(example({{"x", floats_feature({static_cast<float>(i), 0.5f})},
                           {"other", bytes_feature(std::string(5000, 'o'))},
                           {"y", ints_feature({i % 4})}}));
  }
  static std::string records(int64_t count) {
    std::string file;
    for (int64_t i = 0; i < count; ++i) file += record(i);
    return file;
  }
  // The error of indexing a file with this content.
  std::string indexing(const std::string& content, config::DatasetConfig config) const {
    write("data.tfrecord", content);
    const auto dataset = open(config);
    EXPECT_FALSE(dataset.ok());
    return dataset.ok() ? "" : dataset.status().message();
  }
  // The error of reading the first sample; indexing succeeds.
  std::string reading(const std::string& content, const config::DatasetConfig& config) const {
    write("data.tfrecord", content);
    const auto dataset = opened(config);
    return dataset ? read_sample(*dataset, 0).status.message() : "";
  }
};

TEST_F(TfrecordDatasetTest, ReadsEmptyListsWithMaxLength) {
  const auto boxes = [](const std::string& name, const std::string& feature) {
    return framed(
        example({{"x", floats_feature({1, 2})}, {"y", ints_feature({0})}, {name, feature}}));
  };
  // As TensorFlow writes Feature(float_list=FloatList(value=[])), and a list of one box.
  write("data.tfrecord",
        boxes("boxes", message(2, "")) + boxes("boxes", floats_feature({1, 2, 3, 4})));
  auto config = tfrecord();
  fields_in(config).lists = {{.name = "boxes", .shape = {4}, .max_length = 1, .padding_value = -1}};
  const auto dataset = opened(config);
  ASSERT_TRUE(dataset);
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_THAT(read_sample(*dataset, 0).values<float>(2), ElementsAre(-1, -1, -1, -1));
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(2), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(indexing(boxes("box", message(2, "")), config), HasSubstr("has no lists 'boxes'"));
  fields_in(config).lists[0] = {.name = "boxes", .shape = {4}};
  EXPECT_THAT(indexing(boxes("boxes", message(2, "")), config), HasSubstr("has no lists 'boxes'"));
}

// ---- Files written by TensorFlow

TEST_F(TfrecordDatasetTest, ReadsImagesWrittenByTensorFlow) {
  auto config = golden({});
  fields_in(config).image = "image/encoded";
  transforms_in(config) = {config::Resize{{3, 4}}};
  const auto dataset = opened(config);
  ASSERT_TRUE(dataset);
  ASSERT_EQ(dataset->size(), 8u);
  EXPECT_EQ(dataset->classes(), 3u);
  for (uint64_t i = 0; i < 8; ++i) {
    const Sample sample = read_sample(*dataset, i);
    ASSERT_TRUE(sample.status.ok()) << sample.status.to_string();
    EXPECT_EQ(sample.label(), static_cast<int64_t>(i % 3));
    for (uint8_t p = 0; p < 12; ++p) {
      EXPECT_EQ(sample.values<uint8_t>(0)[p], i);
      EXPECT_EQ(sample.values<uint8_t>(0)[12 + p], 10 * i);
      EXPECT_EQ(sample.values<uint8_t>(0)[24 + p], p);
    }
  }
  EXPECT_THAT(dataset->source(5).file, HasSubstr("golden-00001-of-00002.tfrecord"));
  EXPECT_EQ(dataset->source(5).offset, 0u);
}

TEST_F(TfrecordDatasetTest, ReadsBytesFloatsAndIntegersWrittenByTensorFlow) {
  auto config = golden({"image/raw"});
  record_in(config).input_shape = {3, 4, 3};
  EXPECT_EQ(read_sample(*opened(config), 7).values<uint8_t>(0)[3 * 5 + 1], 70);
  config = golden({"floats", "ints"});
  record_in(config).input_shape = {5};
  EXPECT_THAT(read_sample(*opened(config), 3).values<float>(0),
              ElementsAre(3, 3.5, -3, 3, -1099511627776.f));
  config = golden({"floats"});
  record_in(config).input_shape = {3};
  fields_in(config).label = "";
  fields_in(config).target = {"target"};
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->classes(), 0u);
  EXPECT_THAT(read_sample(*dataset, 6).values<float>(1), ElementsAre(1.5));
}

TEST_F(TfrecordDatasetTest, ReadsLabelsAsNames) {
  auto config = golden({"floats"});
  record_in(config).input_shape = {3};
  fields_in(config).label = "image/class/text";
  const auto dataset = opened(config);
  EXPECT_THAT(dataset->class_names(), ElementsAre("cat", "dog", "eel"));
  EXPECT_EQ(read_sample(*dataset, 7).label(), 1);
}

TEST_F(TfrecordDatasetTest, ReadsTextsAsOneStream) {
  using namespace std::string_literals;
  auto config = golden({});
  fields_in(config).label = "";
  fields_in(config).text = "text";
  sequence_in(config).block_size = 4;
  const auto dataset = opened(config);
  ASSERT_TRUE(dataset);
  EXPECT_EQ(dataset->spec()[0], (TensorSpec{.name = "tokens", .dtype = DType::kU8, .shape = {5}}));
  EXPECT_EQ(read_sample(*dataset, 0).text(), "\0word"s);
  EXPECT_EQ(read_sample(*dataset, 1).text(), "d\0wor"s);
  EXPECT_EQ(dataset->size(), 141u / 4);  // 0, 4, 9, … 34 bytes and end tokens: 141 in total
}

TEST_F(TfrecordDatasetTest, TreatsFeatureWithoutValuesAsMissing) {
  for (const std::string name : {"nothing", "none"}) {
    auto config = golden({"floats"});
    record_in(config).input_shape = {3};
    fields_in(config).label = name;
    EXPECT_THAT(open(config).status().message(),
                HasSubstr("has no label '" + name + "'; 8 of 8 are incomplete"));
  }
}

TEST_F(TfrecordDatasetTest, RejectsCompressedFilesWithHint) {
  auto config = golden({"floats"});
  record_in(config).input_shape = {3};
  path_in(config) = kGoldenDir + "/golden-gzip.tfrecord";
  expect_error(config, StatusCode::kCorrupt, {"golden-gzip.tfrecord", "gunzip"});
  path_in(config) = kGoldenDir + "/golden-zlib.tfrecord";
  expect_error(config, StatusCode::kCorrupt, {"golden-zlib.tfrecord", "compression"});
}

// ---- Files written by the tests

TEST_F(TfrecordDatasetTest, ChangesFingerprintWithFields) {
  write("data.tfrecord", records(10));
  const std::string fingerprint = opened(tfrecord())->fingerprint();
  auto config = tfrecord();
  record_in(config).num_classes = 10;
  EXPECT_NE(opened(config)->fingerprint(), fingerprint);
  EXPECT_EQ(opened(config)->classes(), 10u);
}

TEST_F(TfrecordDatasetTest, ReadsRecordsAdjacentToDroppedOnes) {
  const std::string without = framed(example({{"x", floats_feature({9, 9})}}));
  write("data.tfrecord", record(1) + without + record(2) + without);
  expect_error(tfrecord(), StatusCode::kCorrupt,
               {path("data.tfrecord"), "label 'y'", "2 of 4", "on_missing_field: drop"});
  auto config = tfrecord();
  record_in(config).on_missing_field = config::OnMissingField::kDrop;
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_EQ(read_sample(*dataset, 0).label(), 1);
  EXPECT_EQ(read_sample(*dataset, 1).label(), 2);
}

TEST_F(TfrecordDatasetTest, ReadsUnpackedNumbersAndMapsInAnyOrder) {
  const std::string unpacked = message(2, "\x0d" + testing::raw(1.5f) + "\x0d" + testing::raw(2.f));
  const std::string label = message(3, "\x08\x03");
  const std::string value_first = message(2, unpacked) + message(1, "x");
  const std::string map = message(1, value_first) + message(1, message(1, "y") + message(2, label));
  write("data.tfrecord", framed(message(1, map)));
  const Sample sample = read_sample(*opened(tfrecord()), 0);
  ASSERT_TRUE(sample.status.ok()) << sample.status.to_string();
  EXPECT_THAT(sample.values<float>(0), ElementsAre(1.5, 2));
  EXPECT_EQ(sample.label(), 3);
}

TEST_F(TfrecordDatasetTest, AcceptsEmptyShards) {
  write("data/a", "");
  write("data/b", records(2));
  auto config = tfrecord();
  path_in(config) = path("data");
  EXPECT_EQ(opened(config)->size(), 2u);
  EXPECT_THAT(opened(config)->source(0).file, HasSubstr("data/b"));
  write("data/b", "");
  expect_error(config, StatusCode::kNotFound, {"data.train.path", "no record in its 2 files"});
}

TEST_F(TfrecordDatasetTest, RejectsMissingShardOfRange) {
  for (const std::string name : {"7", "8", "9", "10", "12"}) write("data/r-" + name, records(1));
  auto config = tfrecord();
  path_in(config) = path("data");
  glob_in(config) = "r-{7..12}";
  expect_error(config, StatusCode::kNotFound, {"data.train.glob", "'r-11'", "1 of the 6"});
  glob_in(config) = "r-{7..10}";
  EXPECT_EQ(opened(config)->size(), 4u);
}

TEST_F(TfrecordDatasetTest, RejectsTruncationAtAnyByte) {
  const std::string whole = record(1) + record(2);
  for (size_t length = 1; length < whole.size(); length += length % 1000 < 30 ? 1 : 487) {
    if (length == record(1).size()) continue;  // a valid file with one record
    write("data.tfrecord", whole.substr(0, length));
    expect_error(tfrecord(), StatusCode::kCorrupt, {path("data.tfrecord"), "offset"});
  }
}

TEST_F(TfrecordDatasetTest, DetectsFlippedByteAtIndexingOrReading) {
  const std::string whole = framed(example(
      {{"x", floats_feature({1, 2})}, {"o", bytes_feature("other")}, {"y", ints_feature({3})}}));
  for (size_t position = 0; position < whole.size(); ++position) {
    std::string corrupted = whole;
    corrupted[position] = static_cast<char>(corrupted[position] ^ 0x10);
    write("data.tfrecord", corrupted);
    const auto dataset = open(tfrecord());
    const Status status = dataset.ok() ? read_sample(**dataset, 0).status : dataset.status();
    EXPECT_TRUE(status.code() == StatusCode::kCorrupt ||
                status.code() == StatusCode::kInvalidArgument)
        << position << ": " << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("offset 0")) << position;
  }
}

TEST_F(TfrecordDatasetTest, VerifiesChecksumOfTextsOnEveryRead) {
  auto config = tfrecord();
  fields_in(config).input = {};
  record_in(config).input_shape = {};
  fields_in(config).label = "";
  fields_in(config).text = "t";
  sequence_in(config).block_size = 4;
  std::string file = framed(example({{"t", bytes_feature("hello world")}}));
  file[file.size() - 10] ^= 1;
  EXPECT_THAT(reading(file, config), HasSubstr("checksum of its data"));
}

TEST_F(TfrecordDatasetTest, RejectsInvalidLengthWithoutAllocation) {
  const std::string length = testing::raw<uint64_t>(~uint64_t{0} - 20);
  const std::string head = length + testing::raw(masked_crc32c(length));
  EXPECT_THAT(indexing(head + record(1), tfrecord()),
              HasSubstr("record at offset 0: has 18446744073709551595 bytes, more than the limit"));
}

TEST_F(TfrecordDatasetTest, RejectsInvalidExampleWithLocation) {
  const auto of = [&](const std::string& data) { return indexing(framed(data), tfrecord()); };
  EXPECT_THAT(of("\x0b"), HasSubstr("offset 0: a field of an unknown type at byte 0"));
  EXPECT_THAT(of("\x0a\x7f"), HasSubstr("a field goes past its message"));
  EXPECT_THAT(of("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), HasSubstr("past its message"));
  EXPECT_THAT(of("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), HasSubstr("length is invalid"));
  EXPECT_THAT(of(std::string("\x02\x01x")), HasSubstr("invalid field tag"));
  EXPECT_THAT(of("\x08\x01"), HasSubstr("invalid tf.train.Example"));
  EXPECT_THAT(of(example({{"y", ints_feature({1})}, {"y", ints_feature({1})}})),
              HasSubstr("'y' occurs twice"));
}

TEST_F(TfrecordDatasetTest, RejectsInvalidLabelsDuringIndexing) {
  const auto of = [&](const std::string& label) {
    return indexing(framed(example({{"x", floats_feature({1, 2})}, {"y", label}})), tfrecord());
  };
  EXPECT_THAT(of(ints_feature({-1})), HasSubstr("offset 0: label 'y' must be at least 0, got -1"));
  EXPECT_THAT(of(ints_feature({1, 2})), HasSubstr("label 'y' must be one integer, got 2 integers"));
  EXPECT_THAT(of(floats_feature({1.5f})),
              HasSubstr("label 'y' must be an integer of at least 0, got 1.5"));
  EXPECT_THAT(of(bytes_feature(std::string(5000, 'x'))), HasSubstr("no label"));
  EXPECT_THAT(of(message(1, message(1, "a") + message(1, "b"))),
              HasSubstr("must have one value, got 2"));
}

TEST_F(TfrecordDatasetTest, ReportsSampleErrorOnMismatchedValues) {
  const auto of = [&](const std::string& input) {
    return reading(framed(example({{"x", input}, {"y", ints_feature({1})}})), tfrecord());
  };
  EXPECT_EQ(of(floats_feature({1})), path("data.tfrecord") +
                                         ": record at offset 0: input 'x' is too short: 1 "
                                         "of the required 2 numbers");
  EXPECT_THAT(of(floats_feature({1, 2, 3})), HasSubstr("has 3 numbers"));
  EXPECT_THAT(of(bytes_feature("abc")), HasSubstr("must be 2 bytes, got 3 bytes"));
  EXPECT_THAT(of(message(2, message(1, "12345"))), HasSubstr("numbers are truncated"));
  EXPECT_THAT(of(message(3, message(1, "\xff"))), HasSubstr("a number is invalid"));
}

TEST_F(TfrecordDatasetTest, RejectsFilesOfOtherFormat) {
  EXPECT_THAT(indexing("this is no TFRecord file", tfrecord()), HasSubstr("narrow the glob"));
}

}  // namespace
}  // namespace stoker::data::format
