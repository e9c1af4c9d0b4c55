#include "shared/data/record/sample_assembler.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/record/record_specs.h"

namespace stoker::data::record {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::label_config;
using testing::numbers_config;
using testing::spec_of;

// The spec for inputs of this form.
SampleSpec with_form(const config::DatasetConfig& config, InputForm form) {
  SampleSpec spec = *spec_of(config);
  spec.set_input_form(form);
  return spec;
}
FieldValue bytes_value(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(SampleAssemblerTest, CopiesNumbersAsFloat32WithTargets) {
  const auto spec = spec_of(numbers_config());
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->tensors(),
            (std::vector<TensorSpec>{{.name = "input", .dtype = DType::kF32, .shape = {2, 2}},
                                     {.name = "target", .dtype = DType::kF32, .shape = {1}}}));
  const std::array<float, 3> a{1, 2, 3};
  const int64_t b = 4;
  std::array<float, 4> input{};
  float target = 0;
  std::array<FieldValue, 3> values{FieldFloats(a), FieldInts(&b, 1), bytes_value("0.25")};
  const std::array<std::span<std::byte>, 2> outputs{std::as_writable_bytes(std::span(input)),
                                                    std::as_writable_bytes(std::span(&target, 1))};
  ASSERT_TRUE(SampleAssembler(*spec).assemble({.fields = values}, {}, outputs).ok());
  EXPECT_THAT(input, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(target, 0.25f);
}

TEST(SampleAssemblerTest, CopiesBytesAsUint8WithClassLabel) {
  const SampleSpec spec = with_form(label_config(), InputForm::kBytes);
  EXPECT_EQ(spec.tensors()[0].dtype, DType::kU8);
  EXPECT_EQ(spec.tensors()[1], (TensorSpec{.name = "label", .dtype = DType::kI64, .shape = {}}));
  std::string input(4, '.');
  int64_t label = 0;
  std::array<FieldValue, 3> values{bytes_value("x"), bytes_value("yz!"), FieldValue()};
  const std::array<std::span<std::byte>, 2> outputs{std::as_writable_bytes(std::span(input)),
                                                    std::as_writable_bytes(std::span(&label, 1))};
  ASSERT_TRUE(SampleAssembler(spec).assemble({.fields = values, .label = 3}, {}, outputs).ok());
  EXPECT_EQ(input, "xyz!");
  EXPECT_EQ(label, 3);
}

TEST(SampleAssemblerTest, ReportsFieldThatDoesNotFillShape) {
  alignas(float) std::array<std::byte, 16> input{};
  int64_t label = 0;
  const auto message = [&](FieldValue a, FieldValue b, InputForm form) {
    std::array<FieldValue, 3> values{a, b, FieldValue()};
    const std::array<std::span<std::byte>, 2> outputs{
        std::span(input).first(form == InputForm::kBytes ? 4 : 16),
        std::as_writable_bytes(std::span(&label, 1))};
    const SampleAssembler assembler(with_form(label_config(), form));
    return assembler.assemble({.fields = values}, {}, outputs).message();
  };
  const std::array<float, 5> numbers{};
  EXPECT_EQ(
      message(FieldFloats(numbers).first(2), FieldFloats(numbers).first(1), InputForm::kNumbers),
      "input 'b' is too short: 3 of the required 4 numbers");
  EXPECT_THAT(message(FieldFloats(numbers), FieldFloats(), InputForm::kNumbers),
              HasSubstr("input 'a' has 5 numbers"));
  EXPECT_EQ(message(bytes_value("xy"), bytes_value("z"), InputForm::kBytes),
            "input 'b' must be 2 bytes, got 1 byte");
  EXPECT_THAT(message(bytes_value("xyzxyz"), bytes_value("z"), InputForm::kBytes),
              HasSubstr("input 'a' must be 4 bytes, got 6 bytes"));
  EXPECT_THAT(message(FieldFloats(numbers), bytes_value("z"), InputForm::kBytes),
              HasSubstr("input 'a' must be 4 bytes, got 5 numbers"));
  EXPECT_THAT(message(bytes_value("xy"), bytes_value("z"), InputForm::kNumbers),
              HasSubstr("input 'a' must be a number, got 'xy'"));
}

TEST(SampleAssemblerTest, RequiresBytesForImage) {
  config::DatasetConfig config = label_config();
  fields_in(config).input = {};
  fields_in(config).image = "jpg";
  record_in(config).input_shape = {};
  transforms_in(config) = {config::Resize{{8, 9}}};
  const auto spec = spec_of(config);
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  EXPECT_EQ(spec->key_of(0), "fields.image");
  const SampleAssembler assembler(*spec);
  EXPECT_EQ(spec->tensors()[0].shape, (std::vector<int64_t>{3, 8, 9}));
  EXPECT_EQ(*assembler.input_form(bytes_value("…")), InputForm::kImage);
  EXPECT_THAT(assembler.input_form(FieldFloats()).status().message(),
              HasSubstr("name it in fields.input, with an input_shape"));
}

TEST(SampleAssemblerTest, DerivesInputTypeFromFirstValue) {
  const SampleAssembler assembler(*spec_of(label_config()));
  EXPECT_EQ(*assembler.input_form(bytes_value("x")), InputForm::kBytes);
  EXPECT_EQ(*assembler.input_form(FieldInts()), InputForm::kNumbers);
}

TEST(SampleAssemblerTest, LeavesArrayThatWasReadIntoItsTensor) {
  const SampleAssembler assembler(SampleSpec::labeled({.shape = {2}}));
  std::array<float, 2> input{1, std::numeric_limits<float>::denorm_min()};
  int64_t label = 0;
  const std::array<std::span<std::byte>, 2> outputs{std::as_writable_bytes(std::span(input)),
                                                    std::as_writable_bytes(std::span(&label, 1))};
  std::array<FieldValue, 2> values{FieldArray{.bytes = outputs[0], .type = {}}, FieldValue()};
  ASSERT_TRUE(assembler.assemble({.fields = values, .label = 7}, {}, outputs).ok());
  EXPECT_EQ(input[0], 1);
  EXPECT_EQ(input[1], std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(label, 7);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    input[1] = bad;
    const Status status = assembler.assemble({.fields = values}, {}, outputs);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("must be finite, got "));
  }
}

TEST(SampleAssemblerTest, ReportsErrorsOfUnnamedValuesWithoutName) {
  const SampleAssembler assembler(SampleSpec::labeled({.dtype = DType::kU8, .shape = {3}}));
  std::string input(3, '.');
  int64_t label = 0;
  const std::array<std::span<std::byte>, 2> outputs{std::as_writable_bytes(std::span(input)),
                                                    std::as_writable_bytes(std::span(&label, 1))};
  std::array<FieldValue, 2> values{bytes_value("xy"), FieldValue()};
  EXPECT_EQ(assembler.assemble({.fields = values}, {}, outputs).message(),
            "must be 3 bytes, got 2 bytes");
}

TEST(SampleAssemblerTest, RejectsLabelAboveClassesOfIndex) {
  config::DatasetConfig config{.source = config::JsonlDataset{}};
  sequence_in(config).max_length = 3;
  fields_in(config).input_ids = "ids";
  fields_in(config).labels = "tags";
  SampleSpec spec = *spec_of(config);
  spec.num_classes = 5;
  const std::array<int64_t, 2> ids{7, 8}, tags{kPaddedLabel, 5};
  std::array<int32_t, 3> tokens{};
  std::array<int64_t, 3> labels{};
  int64_t length = 0;
  const std::array<std::span<std::byte>, 3> outputs{std::as_writable_bytes(std::span(tokens)),
                                                    std::as_writable_bytes(std::span(&length, 1)),
                                                    std::as_writable_bytes(std::span(labels))};
  std::array<FieldValue, 2> values{FieldInts(ids), FieldInts(tags)};
  const Status status =
      SampleAssembler(spec).assemble({.fields = values, .length = 2}, {}, outputs);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_EQ(status.message(),
            "labels 'tags' has label 5, which did not exist when the file was indexed");
}

}  // namespace
}  // namespace stoker::data::record
