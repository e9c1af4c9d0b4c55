// Class weights and ignored labels in the training and evaluation losses.
#include "shared/task/label_loss.h"

#include <cmath>
#include <vector>

#include <ATen/ops/linspace.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/task/task.h"
#include "tests/shared/task/echo.h"

namespace stoker::task {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

at::Tensor to_labels(std::vector<int64_t> labels) { return at::tensor(labels, at::kLong); }

class LabelLossTest : public ::testing::Test {
 protected:
  static LabelLoss loss(const std::vector<double>& weights, double smoothing = 0) {
    return {*ClassWeights::of(weights, "task.class_weights", weights.size(), "classes"), smoothing};
  }
  // -log p of one class in one row.
  double nll(int64_t row, int64_t label) const { return -log_[row][label].item<double>(); }

  const at::Tensor logits_ = at::linspace(-2, 3, 12).sin().view({4, 3});
  const at::Tensor log_ = at::log_softmax(logits_, 1);
};

TEST_F(LabelLossTest, DividesLossBySumOfLabelWeights) {
  const double expected =
      (2 * nll(0, 1) + 0.5 * nll(1, 0) + 2 * nll(2, 1) + 4 * nll(3, 2)) / (2 + 0.5 + 2 + 4);
  EXPECT_NEAR(loss({0.5, 2, 4}).mean(logits_, to_labels({1, 0, 1, 2})).mean.item<double>(),
              expected, 1e-6);
}

TEST_F(LabelLossTest, WeightsSoftLabelsAndDividesBySamples) {
  const at::Tensor probabilities =
      at::tensor({0.7F, 0.3F, 0.F, 1.F, 0.F, 0.F, 0.F, 0.5F, 0.5F, 0.F, 0.F, 1.F}).view({4, 3});
  const double expected = (0.7 * 0.5 * nll(0, 0) + 0.3 * 2 * nll(0, 1) + 0.5 * nll(1, 0) +
                           0.5 * 2 * nll(2, 1) + 0.5 * 4 * nll(2, 2) + 4 * nll(3, 2)) /
                          4;
  EXPECT_NEAR(loss({0.5, 2, 4}).mean(logits_, probabilities).mean.item<double>(), expected, 1e-6);
}

TEST_F(LabelLossTest, AssignsWeightOneToOutputsBeyondWeights) {
  const double smoothed = 0.3 / 3;
  double sum = 0, weights = 0;
  const std::vector<double> weight{0.5, 2, 1};
  for (const auto& [row, label] : {std::pair{0, 0}, {1, 1}, {2, 1}, {3, 0}}) {
    sum += 0.7 * weight[label] * nll(row, label);
    weights += weight[label];
    for (int each = 0; each < 3; ++each) sum += smoothed * weight[each] * nll(row, each);
  }
  EXPECT_NEAR(loss({0.5, 2}, 0.3).mean(logits_, to_labels({0, 1, 1, 0})).mean.item<double>(),
              sum / weights, 1e-6);
}

TEST_F(LabelLossTest, ExcludesIgnoredLabelsFromSumAndDivisor) {
  const at::Tensor labels = to_labels({kIgnoredLabel, 0, 2, kIgnoredLabel});
  EXPECT_NEAR(loss({}).mean_over_valid(logits_, labels).mean.item<double>(),
              (nll(1, 0) + nll(2, 2)) / 2, 1e-6);
  EXPECT_NEAR(loss({0.5, 2, 4}).mean_over_valid(logits_, labels).mean.item<double>(),
              (0.5 * nll(1, 0) + 4 * nll(2, 2)) / 4.5, 1e-6);
}

TEST_F(LabelLossTest, ReturnsZeroLossAndGradientWithoutCountedLabels) {
  const at::Tensor logits = logits_.clone().requires_grad_();
  for (const auto& weights : {std::vector<double>{}, {0, 0, 4}}) {
    const at::Tensor labels = weights.empty() ? to_labels(std::vector<int64_t>(4, kIgnoredLabel))
                                              : to_labels({0, 1, 1, 0});
    // With weights, the smoothed sum is that of the other classes (step_loss_test.cc).
    const double smoothing = weights.empty() ? 0.1 : 0;
    const at::Tensor none = loss(weights, smoothing).mean_over_valid(logits, labels).mean;
    none.backward();
    EXPECT_EQ(none.item<double>(), 0);
    EXPECT_EQ(logits.grad().abs().max().item<double>(), 0);
  }
}

TEST_F(LabelLossTest, RejectsInvalidLabel) {
  EXPECT_THROW(loss({1, 2, 3}).mean(logits_, to_labels({0, 1, 3, 0})), c10::Error);
  EXPECT_THROW(loss({}).mean_over_valid(logits_, to_labels({0, -1, 1, 0})), c10::Error);
}

// ---- Tasks with class weights

Result<std::unique_ptr<Task>> classification(std::vector<double> weights) {
  return make_task({config::ClassificationTask{.class_weights = {std::move(weights)}}}, nullptr,
                   {{"input", DType::kF32, {3}}, {"label", DType::kI64, {}}}, 3);
}

Result<std::unique_ptr<Task>> multilabel(std::vector<double> weights) {
  return make_task({config::MultilabelClassificationTask{.pos_weight = std::move(weights)}},
                   nullptr, {{"input", DType::kF32, {3}}, {"target", DType::kF32, {3}}}, 0);
}

double evaluation_loss(const Task& task, const Batch& batch) {
  Echo model;
  const auto evaluation = task.start_evaluation({});
  evaluation->add(model, batch);
  return evaluation->report().metrics[0].second;
}

TEST_F(LabelLossTest, AppliesPosWeightToPositiveLabels) {
  const auto task = multilabel({3, 1, 0.5});
  ASSERT_TRUE(task.ok()) << task.status().to_string();
  const at::Tensor target = at::tensor({1.F, 0.F, 1.F}).expand({4, 3}).contiguous();
  double expected = 0;
  for (int64_t row = 0; row < 4; ++row) {
    const auto positive_loss = [&](int64_t i) {
      return std::log1p(std::exp(-logits_[row][i].item<double>()));
    };
    const auto negative_loss = [&](int64_t i) {
      return std::log1p(std::exp(logits_[row][i].item<double>()));
    };
    expected += (3 * positive_loss(0) + negative_loss(1) + 0.5 * positive_loss(2)) / 12;
  }
  Echo model;
  EXPECT_NEAR((*task)->loss(model, {logits_, target}).item<double>(), expected, 1e-6);
}

TEST_F(LabelLossTest, WeightsEvaluationLossLikeTraining) {
  for (const bool has_target : {false, true}) {
    const auto make = has_target ? multilabel : classification;
    const Batch batch{logits_, has_target ? logits_.gt(0).to(at::kFloat) : to_labels({0, 1, 2, 1})};
    const auto weighted = make({3, 1, 0.5}), plain = make({});
    ASSERT_TRUE(weighted.ok() && plain.ok());
    Echo model;
    EXPECT_NEAR(evaluation_loss(**weighted, batch), (*weighted)->loss(model, batch).item<double>(),
                1e-6);
    EXPECT_GT(std::abs(evaluation_loss(**weighted, batch) - evaluation_loss(**plain, batch)), 1e-3);
  }
}

// F.cross_entropy of PyTorch 2.11 over the dataset, with these weights (tests/parity/make_numbers.py).
TEST_F(LabelLossTest, DividesEvaluationLossByTotalWeightOfDataset) {
  constexpr double kExpected = 1.0757886;
  const auto task = classification({3, 1, 0.5});
  ASSERT_TRUE(task.ok());
  const at::Tensor labels = to_labels({0, 2, 2, 2});
  const auto in_batches = (*task)->start_evaluation({});
  Echo model;
  for (const auto& [from, to] : {std::pair{0, 1}, {1, 4}})
    in_batches->add(model, {logits_.slice(0, from, to), labels.slice(0, from, to)});
  EXPECT_NEAR(in_batches->report().metrics[0].second, kExpected, 1e-6);
  EXPECT_NEAR(evaluation_loss(**task, {logits_, labels}), kExpected, 1e-6);
}

TEST(ClassWeightsValidationTest, RejectsMismatchedWeightCountWithBothSizes) {
  EXPECT_THAT(classification({1, 2}).status().message(),
              AllOf(HasSubstr("task.class_weights has 2"), HasSubstr("3 classes")));
  EXPECT_THAT(multilabel({1, 2, 3, 4}).status().message(),
              AllOf(HasSubstr("task.pos_weight has 4"), HasSubstr("3 labels")));
}

}  // namespace
}  // namespace stoker::task
