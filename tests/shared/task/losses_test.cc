// task.loss: values of PyTorch 2.11, torchvision 0.26 and scikit-learn 1.9 for outputs that the test sets.
#include <map>
#include <string>
#include <vector>

#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/task/binary_loss.h"
#include "shared/task/label_loss.h"
#include "shared/task/task.h"
#include "tests/shared/task/echo.h"

// A namespace of its own: other tests of the target have the same names.
namespace stoker::task::losses {
namespace {

const std::vector<TensorSpec> kTargetSample{{"input", DType::kF32, {2}},
                                            {"target", DType::kF32, {2}}};
const std::vector<TensorSpec> kLabelSample{{"input", DType::kF32, {3}}, {"label", DType::kI64, {}}};
const std::vector<TensorSpec> kBinary{{"input", DType::kF32, {1}}, {"label", DType::kI64, {}}};

at::Tensor outputs() { return at::tensor({0.5F, -1.25F, 2.0F, 0.0F, -3.0F, 4.0F}).view({3, 2}); }
at::Tensor targets() { return at::tensor({0.25F, 1.0F, -1.0F, 0.125F, -2.5F, 4.5F}).view({3, 2}); }
at::Tensor logits() {
  return at::tensor({1.0F, 2.0F, -0.5F, 0.3F, -0.2F, 0.1F, -1.0F, 0.5F, 3.0F, 2.0F, 1.5F, 0.0F})
      .view({4, 3});
}
at::Tensor labels() { return at::tensor(std::vector<int64_t>{1, 0, 0, 2}, at::kLong); }

struct Found {
  double trained = 0;    // of a batch
  double evaluated = 0;  // of the same samples one by one
};

Found loss_of(const config::TaskConfig& config, const std::vector<TensorSpec>& sample,
              const Batch& batch, uint64_t classes) {
  Echo model;
  const auto task = make_task(config, nullptr, sample, classes);
  if (!task.ok()) {
    ADD_FAILURE() << task.status().to_string();
    return {};
  }
  Found found{.trained = (*task)->loss(model, batch).item<double>()};
  const auto evaluation = (*task)->start_evaluation({});
  for (int64_t i = 0; i < batch[0].size(0); ++i)
    evaluation->add(model, {batch[0].slice(0, i, i + 1), batch[1].slice(0, i, i + 1)});
  found.evaluated = evaluation->report().metrics.front().second;
  return found;
}

void expect_loss(const config::TaskConfig& config, const std::vector<TensorSpec>& sample,
                 const Batch& batch, double expected, uint64_t classes = 0) {
  const Found found = loss_of(config, sample, batch, classes);
  EXPECT_NEAR(found.trained, expected, 1e-6);
  EXPECT_NEAR(found.evaluated, expected, 1e-6);
}

TEST(RegressionLossTest, HasValuesOfPyTorch) {
  using config::RegressionLoss;
  using config::RegressionTask;
  const Batch batch{outputs(), targets()};
  expect_loss({RegressionTask{}}, kTargetSample, batch, 2.44010425);
  expect_loss({RegressionTask{.loss = RegressionLoss::kL1}}, kTargetSample, batch, 1.10416663);
  expect_loss({RegressionTask{.loss = RegressionLoss::kHuber, .delta = 0.75}}, kTargetSample, batch,
              0.610677063);
  expect_loss({RegressionTask{.loss = RegressionLoss::kSmoothL1, .beta = 0.4}}, kTargetSample,
              batch, 0.924609363);
  expect_loss({RegressionTask{.loss = RegressionLoss::kQuantile, .quantile = 0.9}}, kTargetSample,
              batch, 0.560416667);
}

// sigmoid_focal_loss of torchvision.
TEST(BinaryFocalLossTest, HasValuesOfTorchvision) {
  const Batch batch{outputs(), at::tensor({1.F, 0.F, 1.F, 1.F, 0.F, 1.F}).view({3, 2})};
  expect_loss({config::MultilabelClassificationTask{.loss = config::BinaryLoss::kFocal}},
              kTargetSample, batch, 0.0425455868);
  expect_loss({config::MultilabelClassificationTask{
                  .loss = config::BinaryLoss::kFocal, .gamma = 1.5, .alpha = 0.25}},
              kTargetSample, batch, 0.0183850806);
  const Batch single{at::tensor({0.5F, -1.25F, 2.0F, -3.0F}).view({4, 1}),
                     at::tensor(std::vector<int64_t>{1, 0, 0, 1}, at::kLong)};
  expect_loss({config::BinaryClassificationTask{.loss = config::BinaryLoss::kFocal, .alpha = 0.3}},
              kBinary, single, 0.503489256, 2);
}

// Of one channel, MONAI's DiceLoss(sigmoid=True) with smooth_nr and smooth_dr; by its formula
// (tests/parity/make_recipe_numbers.py).
TEST(BinaryDiceLossTest, HasValuesOfFormula) {
  using config::MultilabelClassificationTask;
  const Batch batch{outputs(), at::tensor({1.F, 0.F, 1.F, 1.F, 0.F, 1.F}).view({3, 2})};
  expect_loss({MultilabelClassificationTask{.loss = config::BinaryLoss::kDice}}, kTargetSample,
              batch, 0.180229247);
  expect_loss({MultilabelClassificationTask{.loss = config::BinaryLoss::kDice, .smooth = 1}},
              kTargetSample, batch, 0.124635361);
}

TEST(BinaryDiceLossTest, IsDefinedWithoutPositiveLabel) {
  const at::Tensor input = at::full({1, 2}, -200.F).requires_grad_();
  const ClassWeights none;
  const BinaryLoss loss(config::MultilabelClassificationTask{.loss = config::BinaryLoss::kDice},
                        none);
  const at::Tensor mean = loss.mean(input, at::zeros({1, 2}));
  mean.backward();
  EXPECT_NEAR(mean.item<double>(), 0, 1e-6) << "nothing to find, and nothing found";
  EXPECT_TRUE(input.grad().isfinite().all().item<bool>());
}

// KLDivLoss(reduction="batchmean") of PyTorch 2.11, and mae and mse of the softmax.
TEST(KlDivLossTest, HasValuesOfPyTorch) {
  const config::TaskConfig config{config::RegressionTask{.loss = config::RegressionLoss::kKlDiv}};
  const Batch batch{outputs(), at::tensor({0.25F, 0.75F, 1.F, 0.F, 0.5F, 0.5F}).view({3, 2})};
  expect_loss(config, kTargetSample, batch, 1.2816937);
  Echo model;
  const auto task = *make_task(config, nullptr, kTargetSample, 0);
  const auto evaluation = task->start_evaluation({});
  evaluation->add(model, batch);
  const eval_metrics::MetricValues metrics = evaluation->report().metrics;
  const std::map<std::string, double> values(metrics.begin(), metrics.end());
  EXPECT_NEAR(values.at("mae"), 0.406748265, 1e-6);
  EXPECT_NEAR(values.at("mse"), 0.208548769, 1e-6);
  const LossAndMetric trained = task->loss_and_metric(model, batch);
  EXPECT_NEAR(trained.metric_sum.item<double>() / 6, 0.406748265, 1e-6) << "the training metric";
}

TEST(KlDivLossTest, NeedsTwoClasses) {
  const auto task = make_task({config::RegressionTask{.loss = config::RegressionLoss::kKlDiv}},
                              nullptr, {kTargetSample[0], {"target", DType::kF32, {1}}}, 0);
  ASSERT_EQ(task.status().code(), StatusCode::kMismatch);
  EXPECT_THAT(task.status().message(), ::testing::HasSubstr("the data has 1 target"));
}

// cross_entropy of PyTorch 2.11 with label_smoothing=0.1, in training only.
TEST(LanguageModelingLossTest, SmoothsLabelsAsPyTorch) {
  struct Logits : Echo {
    at::Tensor forward(const at::Tensor&) override { return logits().unsqueeze(0); }
  } model;
  const auto task = make_task({config::LanguageModelingTask{.label_smoothing = 0.1}}, nullptr,
                              {{"tokens", DType::kI64, {5}}}, 0);
  ASSERT_TRUE(task.ok()) << task.status().to_string();
  const Batch tokens{at::tensor(std::vector<int64_t>{2, 1, 0, 0, 2}, at::kLong).unsqueeze(0)};
  EXPECT_NEAR((*task)->loss(model, tokens).item<double>(), 1.93702757, 1e-6);
  const auto evaluation = (*task)->start_evaluation({});
  evaluation->add(model, tokens);
  EXPECT_NEAR(evaluation->report().metrics.front().second,
              at::cross_entropy_loss(logits(), labels()).item<double>(), 1e-6);
}

// (1 - p)^2 times PyTorch's cross entropy, and its mean with class weights.
TEST(FocalLossTest, HasValuesOfFormula) {
  const Batch batch{logits(), labels()};
  expect_loss({config::ClassificationTask{.loss = config::ClassLoss::kFocal}}, kLabelSample, batch,
              1.6188947, 3);
  expect_loss({config::ClassificationTask{.loss = config::ClassLoss::kFocal,
                                          .class_weights = {.values = {0.5, 2.0, 1.0}}}},
              kLabelSample, batch, 1.09453535, 3);
}

TEST(FocalLossTest, HasGradientOfPyTorch) {
  const at::Tensor input = logits().requires_grad_();
  const LabelLoss loss({}, 0, 2.0);
  loss.mean(input, labels()).mean.backward();
  const at::Tensor expected =
      at::tensor({0.01619599F, -0.0198098F, 0.003613814F, -0.1138191F, 0.04843655F, 0.0653825F,
                  -0.2706833F, 0.02053354F, 0.2501497F, 0.1746427F, 0.1059261F, -0.2805688F});
  EXPECT_TRUE(at::allclose(input.grad().flatten(), expected, 0, 1e-6)) << input.grad();
}

// Ignored labels, and predictions without a doubt, of which the factor is 0.
TEST(FocalLossTest, HasFiniteGradientWithoutError) {
  const at::Tensor certain = at::tensor({200.F, -200.F, 1.F, 2.F}).view({2, 2});
  const at::Tensor input = certain.requires_grad_();
  const at::Tensor some = at::tensor(std::vector<int64_t>{0, kIgnoredLabel}, at::kLong);
  for (const double gamma : {0.5, 2.0}) {
    input.mutable_grad() = at::Tensor();
    const LossTerm loss = LabelLoss({}, 0, gamma).mean_over_valid(input, some);
    EXPECT_NEAR(loss.mean.item<double>(), 0, 1e-6);
    loss.mean.backward();
    EXPECT_TRUE(input.grad().isfinite().all().item<bool>()) << input.grad();
  }
}

}  // namespace
}  // namespace stoker::task::losses
