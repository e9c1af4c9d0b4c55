// Loss and metrics of binary_classification from logits that the test sets.
#include <cmath>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/task/task.h"
#include "tests/shared/task/echo.h"

namespace stoker::task {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<TensorSpec> kOneNumber{{"input", DType::kF32, {1}}, {"label", DType::kI64, {}}};

Result<std::unique_ptr<Task>> binary(double pos_weight, uint64_t classes = 2) {
  return make_task({config::BinaryClassificationTask{.pos_weight = pos_weight}}, nullptr,
                   kOneNumber, classes);
}

// The negative log probability of `label`.
double nll(double logit, int64_t label) {
  return std::log1p(std::exp(label == 1 ? -logit : logit));
}

Batch four() {
  return {at::tensor({0.5F, -1.0F, 2.0F, -3.0F}).view({4, 1}),
          at::tensor(std::vector<int64_t>{1, 1, 0, 0}, at::kLong)};
}

TEST(BinaryClassificationTest, WeightsLossOfPositiveSamples) {
  Echo model;
  for (const double weight : {1.0, 3.0}) {
    const auto task = binary(weight);
    ASSERT_TRUE(task.ok()) << task.status().to_string();
    const double expected = (weight * (nll(0.5, 1) + nll(-1, 1)) + nll(2, 0) + nll(-3, 0)) / 4;
    EXPECT_NEAR((*task)->loss(model, four()).item<double>(), expected, 1e-6);
    const auto evaluation = (*task)->start_evaluation({.misclassified = 4});
    const Batch batch = four();
    for (const auto& [from, to] : {std::pair{0, 1}, {1, 4}})
      evaluation->add(model, {batch[0].slice(0, from, to), batch[1].slice(0, from, to)});
    const eval_metrics::EvalReport report = evaluation->report();
    EXPECT_EQ(report.metrics[0].first, "loss");
    EXPECT_NEAR(report.metrics[0].second, expected, 1e-6);
    EXPECT_EQ(report.metrics[1], (std::pair<std::string, double>{"accuracy", 0.5}));
    EXPECT_EQ(report.confusion_matrix, (eval_metrics::ConfusionMatrix{{1, 1}, {1, 1}}));
    EXPECT_EQ(report.misclassified.size(), 2u);
  }
}

TEST(BinaryClassificationTest, RejectsOutputsOfAnotherShape) {
  Echo model;
  const auto task = binary(1);
  ASSERT_TRUE(task.ok()) << task.status().to_string();
  // As many logits a sample as samples: the loss would broadcast the labels.
  const at::Tensor labels = at::tensor(std::vector<int64_t>{1, 0}, at::kLong);
  for (const at::Tensor& outputs : {at::zeros({2, 2}), at::zeros({2}), at::zeros({2, 1, 1})}) {
    try {
      (*task)->loss(model, {outputs, labels});
      ADD_FAILURE() << "there is a loss for outputs of " << outputs.sizes();
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("the task needs [2, 1]"));
    }
    EXPECT_THROW((*task)->start_evaluation({})->add(model, {outputs, labels}), c10::Error);
  }
}

TEST(BinaryClassificationTest, RequiresTwoClasses) {
  EXPECT_THAT(binary(1, 3).status().message(),
              AllOf(HasSubstr("binary_classification needs `label` I64 [] of 2 classes"),
                    HasSubstr("of 3 classes")));
}

}  // namespace
}  // namespace stoker::task
