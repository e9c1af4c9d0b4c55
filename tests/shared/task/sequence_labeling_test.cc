// One label per time step: ignored labels, and metrics that do not depend on the batch size.
#include <map>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/task/label_loss.h"
#include "shared/task/task.h"
#include "tests/shared/task/echo.h"

namespace stoker::task {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSteps = 6;
constexpr int64_t kClasses = 3;
using Samples = std::vector<TensorSpec>;

const TensorSpec kInput{"input", DType::kF32, {kSteps, kClasses}};
const TensorSpec kLabels{"labels", DType::kI64, {kSteps}};
const TensorSpec kLength{"length", DType::kI64, {}};

Result<std::unique_ptr<Task>> made(const Samples& sample, uint64_t classes = kClasses) {
  return make_task({config::SequenceLabelingTask{}}, nullptr, sample, classes);
}

class SequenceLabelingTest : public ::testing::Test {
 protected:
  SequenceLabelingTest() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(9);
  }
  std::unique_ptr<Task> task(const Samples& sample) const {
    auto task = made(sample);
    EXPECT_TRUE(task.ok()) << task.status().to_string();
    return std::move(*task);
  }
  // A batch with any number of steps; a third of the labels is ignored on average.
  static Batch batch_of(int64_t samples, int64_t steps) {
    const at::Tensor labels = at::randint(kClasses, {samples, steps}, at::kLong);
    const at::Tensor is_ignored = at::randint(3, {samples, steps}, at::kLong).eq(0);
    return {at::randn({samples, steps, kClasses}), labels.masked_fill(is_ignored, kIgnoredLabel)};
  }
  static eval_metrics::EvalReport evaluated(const Task& task, const std::vector<Batch>& batches) {
    Echo model;
    const auto evaluation = task.start_evaluation({.top_k = 2, .misclassified = 5});
    for (const Batch& batch : batches) evaluation->add(model, batch);
    return evaluation->report();
  }
};

TEST_F(SequenceLabelingTest, AveragesLossOverCountedLabels) {
  const Batch batch = batch_of(4, kSteps);
  const double expected =
      at::cross_entropy_loss(batch[0].flatten(0, 1), batch[1].flatten()).item<double>();
  Echo model;
  EXPECT_NEAR(task({kInput, kLabels})->loss(model, batch).item<double>(), expected, 1e-6);
}

// Two sequences of tags by hand, with a step that is ignored within an entity and one after it.
TEST_F(SequenceLabelingTest, CountsEntitiesOfSequencesWithTags) {
  const auto tagged = make_task({config::SequenceLabelingTask{.tags = {"O", "B-X", "I-X"}}},
                                nullptr, {kInput, kLabels}, kClasses);
  ASSERT_TRUE(tagged.ok()) << tagged.status().to_string();
  constexpr int64_t kNone = kIgnoredLabel;
  const at::Tensor labels =
      at::tensor(std::vector<int64_t>{1, kNone, 2, 0, 1, kNone, 1, 2, 2, 0, 0, 0}, at::kLong);
  const at::Tensor predicted =
      at::tensor(std::vector<int64_t>{1, 0, 2, 0, 0, 1, 1, 2, 0, 0, 0, 1}, at::kLong);
  const Batch batch{at::one_hot(predicted, kClasses).to(at::kFloat).view({2, kSteps, kClasses}),
                    labels.view({2, kSteps})};
  const auto metrics = evaluated(**tagged, {batch}).metrics;
  const std::map<std::string, double> values(metrics.begin(), metrics.end());
  EXPECT_DOUBLE_EQ(values.at("entity_precision"), 1.0 / 3) << "the first one is right";
  EXPECT_DOUBLE_EQ(values.at("entity_recall"), 1.0 / 3);
  EXPECT_DOUBLE_EQ(values.at("entity_f1"), 1.0 / 3);
  std::vector<Batch> apart;
  for (int64_t i = 0; i < 2; ++i)
    apart.push_back({batch[0].slice(0, i, i + 1), batch[1].slice(0, i, i + 1)});
  EXPECT_EQ(evaluated(**tagged, apart).metrics, metrics);
}

TEST_F(SequenceLabelingTest, RejectsTagsOfAnotherNumberOfClasses) {
  const auto tagged = make_task({config::SequenceLabelingTask{.tags = {"O", "B-X"}}}, nullptr,
                                {kInput, kLabels}, kClasses);
  EXPECT_THAT(tagged.status().message(),
              AllOf(HasSubstr("task.tags: has 2 tags"), HasSubstr("the data has 3 classes")));
}

TEST_F(SequenceLabelingTest, IgnoresLabelsAfterEndOfSequence) {
  Batch batch = batch_of(3, kSteps);
  const at::Tensor length = at::tensor({2, 6, 0}, at::kLong);
  Batch marked = batch;
  marked[1] = batch[1].clone();
  marked[1][0].narrow(0, 2, 4).fill_(kIgnoredLabel);
  marked[1][2].fill_(kIgnoredLabel);
  batch.push_back(length);
  Echo model;
  const auto with_length = task({kInput, kLabels, kLength}), without = task({kInput, kLabels});
  EXPECT_EQ(with_length->loss(model, batch).item<double>(),
            without->loss(model, marked).item<double>());
  EXPECT_EQ(evaluated(*with_length, {batch}).metrics, evaluated(*without, {marked}).metrics);
}

TEST_F(SequenceLabelingTest, ReturnsZeroLossWithoutCountedLabels) {
  Echo model;
  const Batch batch{at::randn({2, kSteps, kClasses}).requires_grad_(),
                    at::zeros({2, kSteps}, at::kLong).fill_(kIgnoredLabel)};
  const at::Tensor loss = task({kInput, kLabels})->loss(model, batch);
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_TRUE(batch[0].grad().eq(0).all().item<bool>());
}

TEST_F(SequenceLabelingTest, ComputesMetricsOverCountedLabels) {
  // The most likely classes of the steps are 0, 1, 2, 0, …
  const at::Tensor input = at::zeros({1, kSteps, kClasses});
  for (int64_t step = 0; step < kSteps; ++step) input[0][step][step % kClasses].fill_(5);
  const at::Tensor labels =
      at::tensor(std::vector<int64_t>{0, 1, 0, kIgnoredLabel, 1, 0}, at::kLong).unsqueeze(0);
  const eval_metrics::EvalReport report = evaluated(*task({kInput, kLabels}), {{input, labels}});
  const std::map<std::string, double> metrics(report.metrics.begin(), report.metrics.end());
  EXPECT_DOUBLE_EQ(metrics.at("accuracy"), 3.0 / 5);
  EXPECT_EQ(report.confusion_matrix,
            (eval_metrics::ConfusionMatrix{{1, 0, 2}, {0, 2, 0}, {0, 0, 0}}));
  EXPECT_EQ(report.classes[1], (eval_metrics::PerClassMetrics{"1", 2, 1, 1, 1}));
  EXPECT_TRUE(metrics.contains("top2_accuracy"));
  EXPECT_TRUE(report.misclassified.empty())
      << "time steps are not reported as misclassified samples";
}

TEST_F(SequenceLabelingTest, ComputesMetricsIndependentOfBatchBoundaries) {
  std::vector<Batch> singles, pairs;
  for (int i = 0; i < 8; ++i) singles.push_back(batch_of(1, kSteps));
  for (size_t i = 0; i < singles.size(); i += 2)
    pairs.push_back(
        {at::cat({singles[i][0], singles[i + 1][0]}), at::cat({singles[i][1], singles[i + 1][1]})});
  const auto labeling = task({kInput, kLabels});
  const eval_metrics::EvalReport one_by_one = evaluated(*labeling, singles),
                                 two_by_two = evaluated(*labeling, pairs);
  EXPECT_EQ(one_by_one.metrics, two_by_two.metrics);
  EXPECT_EQ(one_by_one.confusion_matrix, two_by_two.confusion_matrix);
}

TEST_F(SequenceLabelingTest, AcceptsBatchesShorterThanMaxLength) {
  const Batch batch = batch_of(2, kSteps - 2);
  Echo model;
  EXPECT_GT(task({kInput, kLabels})->loss(model, batch).item<double>(), 0);
}

TEST_F(SequenceLabelingTest, RejectsModelWithOneOutputPerSample) {
  struct OneThing : model::Model {
    at::Tensor forward(const at::Tensor& input) override { return input.select(1, 0); }
  } model;
  const Batch batch = batch_of(2, kSteps);
  try {
    task({kInput, kLabels})->loss(model, batch);
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                AllOf(HasSubstr("each of the 6 steps"), HasSubstr("[2, 3]")));
  }
}

TEST_F(SequenceLabelingTest, RejectsDataOfOtherLayoutWithBothSides) {
  const auto rejected = [](const Samples& sample, uint64_t classes = kClasses) {
    return made(sample, classes).status().message();
  };
  EXPECT_THAT(rejected({kInput, {"label", DType::kI64, {}}}),
              HasSubstr("needs samples with `labels`"));
  EXPECT_THAT(rejected({kInput, {"labels", DType::kI64, {4}}}),
              AllOf(HasSubstr("a label for each step"), HasSubstr("[6, 3]"), HasSubstr("[4]")));
  EXPECT_THAT(rejected({{"input", DType::kU8, {3, 8, 8}}, kLabels}), HasSubstr("needs sequences"));
  EXPECT_THAT(rejected({kInput, {"labels", DType::kF32, {kSteps}}}), HasSubstr("`labels` I64"));
  EXPECT_THAT(rejected({kInput, kLabels}, 1), HasSubstr("1 classes"));
  EXPECT_THAT(rejected({kInput, kLabels, {"length", DType::kI64, {2}}}),
              HasSubstr("`length` I64 []"));
  EXPECT_EQ(rejected({{"tokens", DType::kI32, {kSteps}}, kLabels}), "");
}

TEST(MixupCutmixTest, RejectsTokensAndVariableLengthInputs) {
  const std::vector<config::BatchTransform> mixup{config::Mixup{.alpha = 0.2}};
  const auto made = [&](const Samples& sample) {
    return make_task({config::ClassificationTask{}}, nullptr, sample, kClasses, mixup);
  };
  const TensorSpec label{"label", DType::kI64, {}};
  for (const Samples& sample :
       {Samples{{"tokens", DType::kI32, {kSteps}}, label}, Samples{kInput, label, kLength}})
    EXPECT_THAT(made(sample).status().message(), HasSubstr("data.train.batch_transforms: mixup"));
  EXPECT_TRUE(made({kInput, label}).ok());
}

}  // namespace
}  // namespace stoker::task
