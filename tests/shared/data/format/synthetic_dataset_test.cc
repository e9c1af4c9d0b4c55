#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/hash.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"

namespace stoker::data::format {
namespace {

using testing::read_sample;

class SyntheticDatasetTest : public testing::FolderFixture {
 protected:
  static config::DatasetConfig synthetic(int64_t classes) {
    config::DatasetConfig config;
    config.source = config::SyntheticDataset{
        .num_samples = 100,
        .input_shape = {3, 8},
        .num_classes = classes == 0 ? std::nullopt : std::optional(classes)};
    return config;
  }
};

config::SyntheticDataset& of(config::DatasetConfig& config) {
  return source_in<config::SyntheticDataset>(config);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

TEST_F(SyntheticDatasetTest, ClustersSamplesByClass) {
  const auto dataset = open(synthetic(4));
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ((*dataset)->size(), 100u);
  EXPECT_EQ((*dataset)->classes(), 4u);
  EXPECT_EQ((*dataset)->spec()[0],
            (TensorSpec{.name = "input", .dtype = DType::kF32, .shape = {3, 8}}));
  EXPECT_EQ((*dataset)->spec()[1],
            (TensorSpec{.name = "label", .dtype = DType::kI64, .shape = {}}));
  const auto a = read_sample(**dataset, 0), same = read_sample(**dataset, 4),
             other = read_sample(**dataset, 5);
  EXPECT_EQ(a.label(), same.label());
  EXPECT_NE(a.label(), other.label());
  EXPECT_LT(distance(a.values<float>(0), same.values<float>(0)), 0.3);
  EXPECT_GT(distance(a.values<float>(0), same.values<float>(0)), 0.01);
  EXPECT_GT(distance(a.values<float>(0), other.values<float>(0)), 0.7);
}

TEST_F(SyntheticDatasetTest, GeneratesNearlyNormalNumbers) {
  auto config = synthetic(0);
  of(config).input_shape = {100000};
  of(config).num_samples = 1;
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  double sum = 0, squares = 0;
  for (const float value : read_sample(**dataset, 0).values<float>(0))
    sum += value, squares += value * value;
  EXPECT_NEAR(sum / 100000, 0, 0.02);
  EXPECT_NEAR(squares / 100000, 1, 0.02);
}

// Least squares by hand: with one feature the target is w * x + noise.
TEST_F(SyntheticDatasetTest, GeneratesTargetsWithOneLinearModel) {
  auto config = synthetic(0);
  of(config).input_shape = {1};
  of(config).num_targets = 2;
  of(config).noise_std = 0;
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ((*dataset)->classes(), 0u);
  EXPECT_EQ((*dataset)->spec()[1],
            (TensorSpec{.name = "target", .dtype = DType::kF32, .shape = {2}}));
  const auto first = read_sample(**dataset, 0);
  for (uint64_t i = 1; i < 100; ++i) {
    const auto sample = read_sample(**dataset, i);
    for (size_t t = 0; t < 2; ++t)
      EXPECT_NEAR(sample.values<float>(1)[t] * first.values<float>(0)[0],
                  first.values<float>(1)[t] * sample.values<float>(0)[0], 1e-5);
  }
}

TEST_F(SyntheticDatasetTest, LabelsNormalNumbersBySignOfTheirSum) {
  auto config = synthetic(0);
  of(config).label_rule = config::LabelRule::kSumPositive;
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ((*dataset)->classes(), 2u);
  EXPECT_EQ((*dataset)->spec()[1],
            (TensorSpec{.name = "label", .dtype = DType::kI64, .shape = {}}));
  std::vector<int64_t> labels(100);
  ASSERT_TRUE((*dataset)->read_labels(0, labels).ok());
  int64_t positive = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    const auto sample = read_sample(**dataset, i);
    double sum = 0;
    for (const float value : sample.values<float>(0)) sum += value;
    EXPECT_EQ(sample.label(), sum > 0 ? 1 : 0) << i;
    EXPECT_EQ(labels[i], sample.label()) << i;
    positive += sample.label();
  }
  EXPECT_GT(positive, 25);
  EXPECT_LT(positive, 75);
  EXPECT_NE((*dataset)->fingerprint(), (*open(synthetic(2), "val"))->fingerprint());
}

TEST_F(SyntheticDatasetTest, SelectsRangesFromSameSequence) {
  const auto whole = open(synthetic(4));
  auto config = synthetic(4);
  config.split = {0.9, 1};
  const auto range = open(config, "val");
  ASSERT_TRUE(whole.ok() && range.ok());
  EXPECT_EQ((*range)->size(), 10u);
  EXPECT_EQ(read_sample(**range, 3).text(), read_sample(**whole, 93).text());
  EXPECT_NE((*range)->fingerprint(), (*whole)->fingerprint());
}

TEST_F(SyntheticDatasetTest, MatchesRecordedBytes) {
  const auto labeled = open(synthetic(4));
  ASSERT_TRUE(labeled.ok());
  const auto sample = read_sample(**labeled, 57);
  EXPECT_EQ(sha256_hex(sample.text(0) + sample.text(1)),
            "24136806541370c69ae7aa0cd926108769b82596e733e94e58db8fa56edf91c3");
  const auto regression = open(synthetic(0), "val");
  ASSERT_TRUE(regression.ok());
  const auto point = read_sample(**regression, 57);
  EXPECT_EQ(sha256_hex(point.text(0) + point.text(1)),
            "e75457b1af06288b0ddfb232e4d1ad579cae7168e7d1ccc3faed7c30c1d0aae0");
}

TEST_F(SyntheticDatasetTest, OpensFromIndex) {
  const std::string fingerprint = (*open(synthetic(4)))->fingerprint();
  EXPECT_TRUE(pipeline::open_indexed("train", synthetic(4), index_dir(), fingerprint).ok());
  EXPECT_EQ(pipeline::open_indexed("train", synthetic(5), index_dir(), fingerprint).status().code(),
            StatusCode::kMismatch);
}

TEST_F(SyntheticDatasetTest, RejectsInvalidSettingsWithKey) {
  const auto rejected = [this](const std::string& key, auto change) {
    auto config = synthetic(0);
    change(config);
    expect_error(config, StatusCode::kInvalidArgument, {"data.train." + key});
  };
  using Config = config::DatasetConfig;
  rejected("num_samples", [](Config& config) { of(config).num_samples = 0; });
  rejected("input_shape", [](Config& config) { of(config).input_shape = {}; });
  rejected("input_shape", [](Config& config) { of(config).input_shape = {4, 0}; });
  rejected("input_shape", [](Config& config) { of(config).input_shape = {1ll << 40, 1ll << 40}; });
  rejected("num_targets", [](Config& config) { of(config).num_targets = 0; });
  rejected("num_targets", [](Config& config) { of(config).num_targets = 1ll << 60; });
  rejected("num_classes", [](Config& config) { of(config).num_classes = -1; });
  rejected("num_classes", [](Config& config) { of(config).num_classes = 0; });
  rejected("noise_std", [](Config& config) { of(config).noise_std = -1; });
  rejected("noise_std", [](Config& config) { of(config).noise_std = std::nan(""); });
  rejected("split", [](Config& config) { config.split = {0, 0.001}; });
}

}  // namespace
}  // namespace stoker::data::format
