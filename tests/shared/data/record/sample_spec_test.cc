#include "shared/data/record/sample_spec.h"

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

void expect_wrong(const config::DatasetConfig& config, const std::string& setting) {
  const auto spec = spec_of(config);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(spec.status().message(), HasSubstr("data.train." + setting));
}

TEST(SampleSpecTest, ListsNamesInOrderOfValues) {
  const auto spec = spec_of(label_config());
  ASSERT_TRUE(spec.ok());
  EXPECT_THAT(spec->names, ElementsAre("a", "b", "l"));
  EXPECT_EQ(spec->label_value(), 2u);
  EXPECT_EQ(spec->key_of(1), "fields.input");
  EXPECT_EQ(spec->key_of(2), "fields.label");
}

TEST(SampleSpecTest, RejectsInvalidSettings) {
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
  fields_in(config).others = {"a", ""};
  expect_wrong(config, "fields.others");
  fields_in(config).others = {};
  fields_in(config).lists = {{.name = ""}};
  expect_wrong(config, "fields.lists");
  fields_in(config).lists = {{.name = "a", .shape = {1 << 15, 2}, .max_length = 1 << 15}};
  expect_wrong(config, "fields.lists: 'a' must have at most");
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

// Of a model with its own loss.
TEST(SampleSpecTest, NeedsNeitherLabelNorTarget) {
  config::DatasetConfig config = label_config();
  fields_in(config).label = "";
  EXPECT_EQ(spec_of(config)->tensors().size(), 1u);
  fields_in(config).others = {"weight", "age"};
  const std::vector<TensorSpec> tensors = spec_of(config)->tensors();
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[2], (TensorSpec{.name = "age", .dtype = DType::kF32, .shape = {}}));
  EXPECT_EQ(spec_of(config)->fingerprint_text().find("label"), std::string::npos);
}

TEST(SampleSpecTest, CountsTargetsByNamesUnlessConfigured) {
  config::DatasetConfig config = numbers_config();
  fields_in(config).target = {"t", "u"};
  record_in(config).num_targets = {};
  EXPECT_EQ(spec_of(config)->tensors()[1].shape, (std::vector<int64_t>{2}));
  record_in(config).num_targets = 5;
  EXPECT_EQ(spec_of(config)->tensors()[1].shape, (std::vector<int64_t>{5}));
}

TEST(SampleSpecTest, FormatsDistinctTextPerFields) {
  config::DatasetConfig config = label_config();
  const std::string first = spec_of(config)->fingerprint_text();
  fields_in(config).input = {"a,1:b"};
  EXPECT_NE(spec_of(config)->fingerprint_text(), first);
  config = label_config();
  record_in(config).input_shape = {4};
  EXPECT_NE(spec_of(config)->fingerprint_text(), first);
  EXPECT_EQ(spec_of(label_config())->fingerprint_text(), first);
}

}  // namespace
}  // namespace stoker::data::record
