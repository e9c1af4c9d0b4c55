// task.class_weights: balanced: computed when a run starts, then read from its checkpoints.
#include "daemon/app/compute_class_weights.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/checkpoint/store.h"
#include "shared/data/dataset_decorator.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/support/temporary_directory.h"

namespace stoker::app {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const config::ClassWeights& weights_of(const config::TaskConfig& task) {
  return std::get<config::ClassificationTask>(task.task).class_weights;
}

// Labels that are known only by reading the samples.
class Unlabeled final : public data::DatasetDecorator {
 public:
  using DatasetDecorator::DatasetDecorator;
  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    return inner().read(sample, random_key, outputs);
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    return Dataset::read_labels(first, labels);
  }
};

class ComputeClassWeightsTest : public ::testing::Test {
 protected:
  // One label per record.
  std::unique_ptr<data::Dataset> data(const std::string& labels) const {
    std::string rows = "x,y\n";
    for (const char label : labels) rows += std::string("1,") + label + '\n';
    EXPECT_TRUE(write_file_atomically(default_file_system(), scratch_ / "data.csv", rows).ok());
    auto opened = data::pipeline::open_dataset(
        "train",
        {.source = config::CsvDataset{.path = scratch_ / "data.csv",
                                      .record = {.fields = {.label = "y"}}}},
        scratch_ / "index", {});
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return *std::move(opened);
  }
  std::optional<checkpoint::VerifiedCheckpoint> checkpoint_with(
      const std::vector<double>& weights) const {
    checkpoint::CheckpointContent content;
    content.manifest.step = 3;
    const float number = 1;
    const auto bytes = std::as_bytes(std::span(&number, 1));
    content.model = content.optim = content.state = {{{"w", DType::kF32, {1}}, bytes}};
    if (!weights.empty())
      content.state.push_back(
          {{checkpoint::kClassWeights, DType::kF64, {static_cast<int64_t>(weights.size())}},
           std::as_bytes(std::span(weights))});
    checkpoint::CheckpointStore store(scratch_ / "checkpoints", default_file_system());
    const auto committed = store.commit(content);
    EXPECT_TRUE(committed.ok()) << committed.status().to_string();
    auto newest = store.open_newest({});
    EXPECT_TRUE(newest.ok()) << newest.status().to_string();
    return *std::move(newest);
  }

  const test::TemporaryDirectory scratch_;
  const config::TaskConfig balanced_{
      config::ClassificationTask{.class_weights = {.is_balanced = true}}};
};

TEST_F(ComputeClassWeightsTest, CountsLabelsOnNewRun) {
  const auto task = compute_class_weights(balanced_, *data("001012"), {}, std::nullopt);
  ASSERT_TRUE(task.ok()) << task.status().to_string();
  EXPECT_TRUE(weights_of(*task).is_balanced);
  EXPECT_THAT(weights_of(*task).values,
              ElementsAre(DoubleEq(6.0 / 9), DoubleEq(6.0 / 6), DoubleEq(6.0 / 3)));
}

// compute_class_weight("balanced", classes=…, y=…, sample_weight=…) of scikit-learn 1.9.1 for the samples that an epoch
// has, or of a mixture for samples weighted by the probability of a draw (tests/parity/make_numbers.py).
TEST_F(ComputeClassWeightsTest, CountsWhatTheRunTrainsOn) {
  using data::order::PlannedDataset;
  struct Case {
    std::string labels;
    std::vector<PlannedDataset> datasets;
    std::vector<double> expected;
  };
  const std::vector<double> weights{1, 0, 2, 0.5};
  const std::vector<Case> cases{
      {"00101112",
       {{.size = 4, .repeat = 3}, {.size = 4}},
       {0.5925925925925926, 0.8888888888888888, 5.333333333333333}},
      {"001011122222",
       {{.size = 4, .weight = 3}, {.size = 8, .weight = 1}},
       {0.5925925925925926, 1.1851851851851851, 2.1333333333333333}},
      {"0010", {{.size = 4, .sample_weights = weights}}, {1.1666666666666667, 0.875}},
      {"001011122222",
       {{.size = 4, .weight = 3, .sample_weights = weights}, {.size = 8, .weight = 1}},
       {1.0370370370370372, 0.6381766381766382, 2.1333333333333333}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.labels);
    const auto labels = data(one.labels);
    const auto task = compute_class_weights(
        balanced_, *labels, {.size = labels->size(), .datasets = one.datasets}, std::nullopt);
    ASSERT_TRUE(task.ok()) << task.status().to_string();
    const std::vector<double>& found = weights_of(*task).values;
    ASSERT_EQ(found.size(), one.expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], one.expected[i], 1e-12) << i;
  }
}

TEST_F(ComputeClassWeightsTest, UsesCheckpointWeightsOnResumeRegardlessOfData) {
  const auto task =
      compute_class_weights(balanced_, *data("012222"), {}, checkpoint_with({0.25, 1.0 / 3, 7}));
  ASSERT_TRUE(task.ok()) << task.status().to_string();
  EXPECT_THAT(weights_of(*task).values, ElementsAre(0.25, 1.0 / 3, 7));
}

TEST_F(ComputeClassWeightsTest, RecountsWhenCheckpointWeightsAreMissingOrMismatched) {
  for (const auto& saved : {std::vector<double>(), std::vector<double>{1, 2}}) {
    const auto task = compute_class_weights(balanced_, *data("012"), {}, checkpoint_with(saved));
    ASSERT_TRUE(task.ok()) << task.status().to_string();
    EXPECT_THAT(weights_of(*task).values, ElementsAre(1, 1, 1));
    std::filesystem::remove_all(scratch_ / "checkpoints");
  }
}

TEST_F(ComputeClassWeightsTest, PreservesExplicitList) {
  const config::TaskConfig task{config::ClassificationTask{}};
  const auto weighed = compute_class_weights(task, *data("012"), {}, checkpoint_with({4, 5, 6}));
  ASSERT_TRUE(weighed.ok()) << weighed.status().to_string();
  EXPECT_THAT(weights_of(*weighed).values, IsEmpty());
}

TEST_F(ComputeClassWeightsTest, RejectsUncountableLabelsWithHint) {
  const auto counted = data("012");
  const Status rejected =
      compute_class_weights(balanced_, Unlabeled(*counted), {}, std::nullopt).status();
  EXPECT_EQ(rejected.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(rejected.message(), HasSubstr("task.class_weights: balanced requires labels"));
  EXPECT_THAT(rejected.message(), HasSubstr("set it to a list with one number per class"));
}

}  // namespace
}  // namespace stoker::app
