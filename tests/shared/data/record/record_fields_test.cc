#include "shared/data/record/record_fields.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/config_parts.h"

namespace stoker::data::record {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kName = "train";

config::DatasetConfig numbers_config() {
  config::DatasetConfig config{.source = config::TfrecordDataset{}};
  fields_in(config).input = {"a", "b"};
  record_in(config).input_shape = {2, 2};
  fields_in(config).target = {"t"};
  record_in(config).num_targets = 1;
  return config;
}
config::DatasetConfig label_config() {
  config::DatasetConfig config = numbers_config();
  fields_in(config).target = {};
  fields_in(config).label = "l";
  return config;
}
Result<RecordFields> fields_of(const config::DatasetConfig& config) {
  return RecordFields::of({.name = kName, .config = config});
}
void expect_wrong(const config::DatasetConfig& config, const std::string& setting) {
  const auto fields = fields_of(config);
  ASSERT_FALSE(fields.ok());
  EXPECT_EQ(fields.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(fields.status().message(), HasSubstr("data.train." + setting));
}
FieldValue bytes_value(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(RecordFieldsTest, ListsNamesInOrderOfValues) {
  const auto fields = fields_of(label_config());
  ASSERT_TRUE(fields.ok());
  EXPECT_THAT(fields->names(), ElementsAre("a", "b", "l"));
  EXPECT_EQ(fields->label(), 2u);
  EXPECT_EQ(fields->key_of_name(1), "input");
  EXPECT_EQ(fields->key_of_name(2), "label");
}

TEST(RecordFieldsTest, CopiesNumbersAsFloat32WithTargets) {
  const auto fields = fields_of(numbers_config());
  ASSERT_TRUE(fields.ok());
  EXPECT_EQ(fields->spec(InputForm::kNumbers),
            (std::vector<TensorSpec>{{.name = "input", .dtype = DType::kF32, .shape = {2, 2}},
                                     {.name = "target", .dtype = DType::kF32, .shape = {1}}}));
  const std::array<float, 3> a{1, 2, 3};
  const int64_t b = 4;
  std::array<float, 4> input{};
  float target = 0;
  const std::array<FieldValue, 3> values{FieldFloats(a), FieldInts(&b, 1), bytes_value("0.25")};
  const std::array<std::span<std::byte>, 2> outputs{std::as_writable_bytes(std::span(input)),
                                                    std::as_writable_bytes(std::span(&target, 1))};
  ASSERT_TRUE(fields->to_tensors(values, InputForm::kNumbers, 0, {}, outputs).ok());
  EXPECT_THAT(input, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(target, 0.25f);
}

TEST(RecordFieldsTest, CopiesBytesAsUint8WithClassLabel) {
  const auto fields = fields_of(label_config());
  ASSERT_TRUE(fields.ok());
  EXPECT_EQ(fields->spec(InputForm::kBytes)[0].dtype, DType::kU8);
  EXPECT_EQ(fields->spec(InputForm::kBytes)[1],
            (TensorSpec{.name = "label", .dtype = DType::kI64, .shape = {}}));
  std::string input(4, '.');
  int64_t label = 0;
  const std::array<FieldValue, 3> values{bytes_value("x"), bytes_value("yz!"), FieldValue()};
  const std::array<std::span<std::byte>, 2> outputs{std::as_writable_bytes(std::span(input)),
                                                    std::as_writable_bytes(std::span(&label, 1))};
  ASSERT_TRUE(fields->to_tensors(values, InputForm::kBytes, 3, {}, outputs).ok());
  EXPECT_EQ(input, "xyz!");
  EXPECT_EQ(label, 3);
}

TEST(RecordFieldsTest, ReportsFieldThatDoesNotFillShape) {
  const auto fields = fields_of(label_config());
  std::array<std::byte, 16> input{};
  int64_t label = 0;
  const auto message = [&](FieldValue a, FieldValue b, InputForm form) {
    const std::array<FieldValue, 3> values{a, b, FieldValue()};
    const std::array<std::span<std::byte>, 2> outputs{
        std::span(input).first(form == InputForm::kBytes ? 4 : 16),
        std::as_writable_bytes(std::span(&label, 1))};
    return fields->to_tensors(values, form, 0, {}, outputs).message();
  };
  const std::array<float, 5> numbers{};
  EXPECT_EQ(
      message(FieldFloats(numbers).first(2), FieldFloats(numbers).first(1), InputForm::kNumbers),
      "input 'b' ends with number 3 of the 4 that are needed");
  EXPECT_THAT(message(FieldFloats(numbers), FieldFloats(), InputForm::kNumbers),
              HasSubstr("input 'a' has 5 numbers"));
  EXPECT_EQ(message(bytes_value("xy"), bytes_value("z"), InputForm::kBytes),
            "input 'b' is 1 byte, but 2 bytes are needed");
  EXPECT_THAT(message(bytes_value("xyzxyz"), bytes_value("z"), InputForm::kBytes),
              HasSubstr("input 'a' is 6"));
  EXPECT_THAT(message(FieldFloats(numbers), bytes_value("z"), InputForm::kBytes),
              HasSubstr("input 'a' is 5 numbers"));
  EXPECT_THAT(message(bytes_value("xy"), bytes_value("z"), InputForm::kNumbers),
              HasSubstr("input 'a' is 'xy', not a number"));
}

TEST(RecordFieldsTest, RequiresBytesForImage) {
  config::DatasetConfig config = label_config();
  fields_in(config).input = {};
  fields_in(config).image = "jpg";
  record_in(config).input_shape = {};
  transforms_in(config) = {config::Resize{{8, 9}}};
  const auto fields = fields_of(config);
  ASSERT_TRUE(fields.ok()) << fields.status().to_string();
  EXPECT_EQ(fields->key_of_name(0), "image");
  EXPECT_EQ(fields->key_of(0), "fields.image");
  EXPECT_EQ(fields->spec(InputForm::kImage)[0].shape, (std::vector<int64_t>{3, 8, 9}));
  EXPECT_EQ(*fields->input_form(bytes_value("…")), InputForm::kImage);
  EXPECT_THAT(fields->input_form(FieldFloats()).status().message(),
              HasSubstr("name it in fields.input, with an input_shape"));
}

TEST(RecordFieldsTest, DerivesInputTypeFromFirstValue) {
  const auto fields = fields_of(label_config());
  EXPECT_EQ(*fields->input_form(bytes_value("x")), InputForm::kBytes);
  EXPECT_EQ(*fields->input_form(FieldInts()), InputForm::kNumbers);
}

TEST(RecordFieldsTest, RejectsInvalidSettings) {
  config::DatasetConfig config{.source = config::TfrecordDataset{}};
  expect_wrong(config, "fields.input");
  config = label_config();
  fields_in(config).input = {"a", ""};
  expect_wrong(config, "fields.input");
  config = label_config();
  record_in(config).input_shape = {};
  expect_wrong(config, "input_shape: is required");
  config = label_config();
  fields_in(config).image = "jpg";
  expect_wrong(config, "fields.image: cannot be combined with fields.input");
  fields_in(config).input = {};
  expect_wrong(config, "input_shape: cannot be combined with fields.image");
  record_in(config).input_shape = {};
  expect_wrong(config, "transforms: encoded images need");
  config = label_config();
  record_in(config).input_shape = {1 << 20, 1 << 20};
  expect_wrong(config, "input_shape: must be positive");
  record_in(config).input_shape = {4, 0};
  expect_wrong(config, "input_shape: must be positive");
  config = label_config();
  fields_in(config).target = {"t"};
  expect_wrong(config, "fields.label");
  config = label_config();
  fields_in(config).label = "";
  expect_wrong(config, "fields.label");
  config = numbers_config();
  record_in(config).num_targets = 0;
  expect_wrong(config, "num_targets");
  fields_in(config).target = {"t", "u"};
  record_in(config).num_targets = 1;
  expect_wrong(config, "num_targets");
  config = label_config();
  fields_in(config).text = "txt";
  expect_wrong(config, "fields.text");
}

TEST(RecordFieldsTest, CountsTargetsByNamesUnlessConfigured) {
  config::DatasetConfig config = numbers_config();
  fields_in(config).target = {"t", "u"};
  record_in(config).num_targets = {};
  EXPECT_EQ(fields_of(config)->spec(InputForm::kNumbers)[1].shape, (std::vector<int64_t>{2}));
  record_in(config).num_targets = 5;
  EXPECT_EQ(fields_of(config)->spec(InputForm::kNumbers)[1].shape, (std::vector<int64_t>{5}));
}

TEST(RecordFieldsTest, FormatsDistinctTextPerFields) {
  config::DatasetConfig config = label_config();
  const std::string first = fields_of(config)->to_text();
  fields_in(config).input = {"a,1:b"};
  EXPECT_NE(fields_of(config)->to_text(), first);
  config = label_config();
  record_in(config).input_shape = {4};
  EXPECT_NE(fields_of(config)->to_text(), first);
  EXPECT_EQ(fields_of(label_config())->to_text(), first);
}

}  // namespace
}  // namespace stoker::data::record
