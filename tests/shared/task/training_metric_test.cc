// The training metric of each task, and that it does not change the loss.
#include <ostream>
#include <string>
#include <vector>

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "shared/task/label_loss.h"
#include "shared/task/task.h"
#include "tests/shared/task/echo.h"

namespace stoker::task {
namespace {

using Sample = std::vector<TensorSpec>;

struct Metric {
  std::string name;
  double sum = 0, count = 0;

  bool operator==(const Metric&) const = default;
};

void PrintTo(const Metric& metric, std::ostream* out) {
  *out << metric.name << ' ' << metric.sum << " / " << metric.count;
}

// Of a batch whose input is the model's output.
Metric metric_of(const config::TaskConfig& config, const Sample& sample, uint64_t classes,
                 Batch batch) {
  const auto task = make_task(config, nullptr, sample, classes);
  EXPECT_TRUE(task.ok()) << task.status().to_string();
  Echo model;
  batch[0].requires_grad_();
  const LossAndMetric computed = (*task)->loss_and_metric(model, batch);
  EXPECT_EQ(computed.loss.mean.item<double>(), (*task)->loss(model, batch).item<double>());
  EXPECT_TRUE(computed.loss.mean.requires_grad());
  EXPECT_FALSE(computed.metric_sum.requires_grad());
  const at::Tensor& counted = computed.maybe_device_count;
  EXPECT_EQ(counted.defined(), config.name() == config::TaskName::kSequenceLabeling)
      << "only labels that can be ignored need an operator to count them";
  return {(*task)->training_metrics(model).at(0), computed.metric_sum.item<double>(),
          counted.defined() ? counted.item<double>() : static_cast<double>(computed.metric_count)};
}

const Sample kLabeled{{"input", DType::kF32, {3}}, {"label", DType::kI64, {}}};
const Sample kTargets{{"input", DType::kF32, {2}}, {"target", DType::kF32, {2}}};

// The largest outputs are 2, 0, 1.
at::Tensor three_rows() {
  return at::tensor({0.F, 1.F, 2.F, 5.F, 4.F, 3.F, 0.F, 9.F, 8.F}).view({3, 3});
}

TEST(TrainingMetricTest, CountsCorrectlyClassifiedSamples) {
  EXPECT_EQ(metric_of({config::ClassificationTask{}}, kLabeled, 3,
                      {three_rows(), at::tensor({2, 1, 1}, at::kLong)}),
            (Metric{"accuracy", 2, 3}));
}

TEST(TrainingMetricTest, CountsSamplesOnTheSideOfTheirLogit) {
  EXPECT_EQ(metric_of({config::BinaryClassificationTask{}}, kLabeled, 2,
                      {at::tensor({1.F, -1.F, 2.F, -2.F}).view({4, 1}),
                       at::tensor({1, 0, 0, 1}, at::kLong)}),
            (Metric{"accuracy", 2, 4}));
}

TEST(TrainingMetricTest, ComparesMixedSamplesWithTheirLargerShare) {
  const at::Tensor shares = at::tensor({0.F, .3F, .7F, .4F, .6F, 0.F, 0.F, 1.F, 0.F}).view({3, 3});
  EXPECT_EQ(metric_of({config::ClassificationTask{}}, kLabeled, 3, {three_rows(), shares}),
            (Metric{"accuracy", 2, 3}));
}

TEST(TrainingMetricTest, CountsLabelsOfSequencesWithoutIgnoredOnes) {
  const Sample sample{
      {"input", DType::kF32, {3, 3}}, {"labels", DType::kI64, {3}}, {"length", DType::kI64, {}}};
  const at::Tensor labels =
      at::tensor(std::vector<int64_t>{2, kIgnoredLabel, 1, 2, 0, 1}, at::kLong).view({2, 3});
  EXPECT_EQ(
      metric_of({config::SequenceLabelingTask{}}, sample, 3,
                {at::stack({three_rows(), three_rows()}), labels, at::tensor({3, 2}, at::kLong)}),
      (Metric{"accuracy", 4, 4}));
  EXPECT_EQ(
      metric_of({config::SequenceLabelingTask{}}, sample, 3,
                {at::stack({three_rows(), three_rows()}), labels, at::tensor({0, 0}, at::kLong)}),
      (Metric{"accuracy", 0, 0}));
}

TEST(TrainingMetricTest, CountsSamplesWithAllLabelsPredicted) {
  const at::Tensor logits = at::tensor({1.F, -1.F, 2.F, 2.F, -3.F, -3.F}).view({3, 2});
  const at::Tensor target = at::tensor({1.F, 0.F, 1.F, 0.F, 0.F, 0.F}).view({3, 2});
  EXPECT_EQ(metric_of({config::MultilabelClassificationTask{}}, kTargets, 0, {logits, target}),
            (Metric{"exact_match", 2, 3}));
}

TEST(TrainingMetricTest, AddsAbsoluteErrorsOfRegression) {
  const at::Tensor outputs = at::tensor({1.F, 2.F, 3.F, 4.F}).view({2, 2});
  EXPECT_EQ(metric_of({config::RegressionTask{}}, kTargets, 0, {outputs, at::zeros({2, 2})}),
            (Metric{"mae", 10, 4}));
}

TEST(TrainingMetricTest, IsUndefinedForTaskWithoutOne) {
  const auto task =
      make_task({config::LanguageModelingTask{}}, nullptr, {{"tokens", DType::kU8, {3}}}, 256);
  ASSERT_TRUE(task.ok());
  EXPECT_TRUE((*task)->training_metrics(Echo()).empty());
}

}  // namespace
}  // namespace stoker::task
