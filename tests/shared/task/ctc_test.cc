// The CTC task: its loss, the labels that it rejects, and decoding.
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/task/task.h"
#include "tests/shared/task/echo.h"

namespace stoker::task {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTimeSteps = 5;
constexpr int64_t kOutputs = 4;
using Samples = std::vector<TensorSpec>;

const TensorSpec kInputSpec{"input", DType::kF32, {kTimeSteps, kOutputs}};
const TensorSpec kLabelSpec{"labels", DType::kI64, {3}};
const TensorSpec kLengthSpec{"length", DType::kI64, {}};

class CtcTest : public ::testing::Test {
 protected:
  CtcTest() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(13);
  }
  static std::unique_ptr<Task> task(bool zero_infinity = false) {
    auto task = make_task({config::CtcTask{.zero_infinity = zero_infinity}}, nullptr,
                          {kInputSpec, kLabelSpec, kLengthSpec}, kOutputs);
    EXPECT_TRUE(task.ok()) << task.status().to_string();
    return std::move(*task);
  }
  static at::Tensor to_tensor(const std::vector<int64_t>& numbers) {
    return at::tensor(numbers, at::kLong);
  }
  static Batch batch_of(const at::Tensor& input, const std::vector<int64_t>& labels,
                        const std::vector<int64_t>& length) {
    return {input, to_tensor(labels).view({input.size(0), -1}), to_tensor(length)};
  }
  static double loss(const Batch& batch, bool zero_infinity = false) {
    Echo model;
    return task(zero_infinity)->loss(model, batch).item<double>();
  }
  static std::map<std::string, double> evaluate(const std::vector<Batch>& batches,
                                                bool zero_infinity = false) {
    Echo model;
    const auto evaluation = task(zero_infinity)->start_evaluation({});
    for (const Batch& batch : batches) evaluation->add(model, batch);
    const auto metrics = evaluation->report().metrics;
    return {metrics.begin(), metrics.end()};
  }
  // An input whose best path is `path`.
  static at::Tensor input_with_path(const std::vector<int64_t>& path) {
    const at::Tensor input = at::zeros({1, kTimeSteps, kOutputs});
    for (size_t step = 0; step < path.size(); ++step)
      input[0][static_cast<int64_t>(step)][path[step]].fill_(9);
    return input;
  }
};

// The probability of the labels is the sum over all paths that collapse to them.
TEST_F(CtcTest, ComputesLossOverAllAlignments) {
  const at::Tensor input = at::randn({1, kTimeSteps, kOutputs});
  const at::Tensor p = at::log_softmax(input[0], 1).exp();
  const auto at = [&p](int64_t step, int64_t label) { return p[step][label].item<double>(); };
  // Two steps, label 2: 22, 2_, _2. Three steps, labels 1 and 1: only 1_1.
  const double two = at(0, 2) * at(1, 2) + at(0, 2) * at(1, 0) + at(0, 0) * at(1, 2);
  EXPECT_NEAR(loss(batch_of(input, {2, -100, -100}, {2})), -std::log(two), 1e-5);
  const double one_one = at(0, 1) * at(1, 0) * at(2, 1);
  EXPECT_NEAR(loss(batch_of(input, {1, 1, -100}, {3})), -std::log(one_one) / 2, 1e-5);
  // No labels: blanks only; the divisor is then 1.
  EXPECT_NEAR(loss(batch_of(input, {-100, -100, -100}, {2})), -std::log(at(0, 0) * at(1, 0)), 1e-5);
}

TEST_F(CtcTest, NormalizesLossByLabelsAndAveragesSamples) {
  const at::Tensor input = at::randn({2, kTimeSteps, kOutputs});
  const Batch both = batch_of(input, {2, 1, -100, 3, -100, -100}, {5, 3});
  const double first = loss(batch_of(input.narrow(0, 0, 1), {2, 1, -100}, {5})),
               second = loss(batch_of(input.narrow(0, 1, 1), {3, -100, -100}, {3}));
  EXPECT_NEAR(loss(both), (first + second) / 2, 1e-5);
}

TEST_F(CtcTest, ReturnsInfiniteOrZeroLossOnTooManyLabels) {
  const at::Tensor input = at::randn({2, kTimeSteps, kOutputs}).requires_grad_();
  const Batch batch = batch_of(input, {1, 1, 1, 2, -100, -100}, {4, 5});
  EXPECT_EQ(loss(batch), std::numeric_limits<double>::infinity());
  const double other = loss(batch_of(input.detach().narrow(0, 1, 1), {2, -100, -100}, {5}));
  EXPECT_NEAR(loss(batch, true), other / 2, 1e-5);
  Echo model;
  task(true)->loss(model, batch).backward();
  EXPECT_TRUE(input.grad().isfinite().all().item<bool>());
  EXPECT_EQ(evaluate({batch}).at("loss"), std::numeric_limits<double>::infinity());
  EXPECT_NEAR(evaluate({batch}, true).at("loss"), other / 2, 1e-5);
}

// LibTorch would read out of bounds.
TEST_F(CtcTest, RejectsInvalidLabels) {
  const at::Tensor input = at::randn({1, kTimeSteps, kOutputs});
  for (const std::vector<int64_t>& labels : {std::vector<int64_t>{0, -100, -100},
                                             {4, -100, -100},
                                             {1, 1000000000000, -100},
                                             {-1, 2, 3},
                                             {1, -100, 2},
                                             {-100, 1, -100}})
    EXPECT_THROW(loss(batch_of(input, labels, {5})), c10::Error) << labels[0] << ' ' << labels[1];
  try {
    loss(batch_of(input, {0, 1, 2}, {5}));
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("classes from 1"));
  }
}

TEST_F(CtcTest, ClampsLengthToTimeSteps) {
  const at::Tensor input = at::randn({1, kTimeSteps, kOutputs});
  EXPECT_EQ(loss(batch_of(input, {2, 3, -100}, {1000})), loss(batch_of(input, {2, 3, -100}, {5})));
}

TEST_F(CtcTest, DecodesBestPathWithinLength) {
  const auto rate = [](const std::vector<int64_t>& path, const std::vector<int64_t>& labels,
                       int64_t length) {
    return evaluate({batch_of(input_with_path(path), labels, {length})}).at("label_error_rate");
  };
  EXPECT_EQ(rate({1, 1, 0, 1, 2}, {1, 1, 2}, 5), 0);
  EXPECT_EQ(rate({1, 0, 1, 2, 3}, {1, 1, -100}, 3), 0);
  EXPECT_DOUBLE_EQ(rate({1, 2, 0, 0, 0}, {1, 2, 3}, 5), 1.0 / 3);
  EXPECT_DOUBLE_EQ(rate({1, 2, 3, 0, 0}, {1, -100, -100}, 5), 2);
}

TEST_F(CtcTest, ComputesMetricsIndependentOfBatchBoundaries) {
  const at::Tensor input = at::randn({4, kTimeSteps, kOutputs});
  const std::vector<std::vector<int64_t>> labels{
      {1, 2, 3}, {3, -100, -100}, {-100, -100, -100}, {2, 2, -100}};
  const std::vector<int64_t> length{5, 2, 4, 5};
  std::vector<Batch> singles;
  std::vector<int64_t> all;
  for (size_t i = 0; i < 4; ++i) {
    singles.push_back(
        batch_of(input.narrow(0, static_cast<int64_t>(i), 1), labels[i], {length[i]}));
    all.insert(all.end(), labels[i].begin(), labels[i].end());
  }
  const auto one_by_one = evaluate(singles), together = evaluate({batch_of(input, all, length)});
  for (const auto& [name, value] : together) EXPECT_NEAR(one_by_one.at(name), value, 1e-6) << name;
  EXPECT_EQ(one_by_one.at("label_error_rate"), together.at("label_error_rate"));
}

TEST_F(CtcTest, UsesAllTimeStepsWithoutLength) {
  auto without_length = make_task({config::CtcTask{}}, nullptr, {kInputSpec, kLabelSpec}, kOutputs);
  ASSERT_TRUE(without_length.ok()) << without_length.status().to_string();
  Batch batch = batch_of(at::randn({1, kTimeSteps, kOutputs}), {2, 3, -100}, {5});
  const double with_length = loss(batch);
  batch.pop_back();
  Echo model;
  EXPECT_EQ((*without_length)->loss(model, batch).item<double>(), with_length);
}

}  // namespace
}  // namespace stoker::task
