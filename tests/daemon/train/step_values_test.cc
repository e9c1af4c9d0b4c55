// Loss and gradient norm of each step and the weights, compared with the formulas of linear regression
// with plain SGD. An optimizer that divides by the size of the gradients would hide a wrong factor, and so
// would clipping in every step.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>

#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

constexpr double kLearningRate = 0.05;
constexpr int64_t kInputs = 8, kTargets = 2;

struct Samples {
  at::Tensor input, target;  // F64, [samples, kInputs] and [samples, kTargets]
};

Samples copy_of(const feed::ReceivedBatch& batch) {
  const auto matrix = [&](size_t number, int64_t width) {
    const auto bytes = batch.tensors[number];
    const auto rows = static_cast<int64_t>(bytes.size() / sizeof(float)) / width;
    return at::from_blob(const_cast<std::byte*>(bytes.data()), {rows, width}, at::kFloat)
        .to(at::kDouble);
  };
  return {matrix(0, kInputs), matrix(1, kTargets)};
}

struct StepValues {
  double loss, grad_norm;
};

// Minimizes F = mean((x W' + b - y)^2) over the samples of a step: dF/dW = 2 / n * e' x and
// dF/db = 2 / n * sum(e), with the errors e and the number n of their elements.
struct LinearRegression {
  at::Tensor weight, bias;  // F64

  StepValues step(const Samples& samples, std::optional<double> max_norm) {
    const at::Tensor error = at::matmul(samples.input, weight.t()) + bias - samples.target;
    const double factor = 2.0 / static_cast<double>(error.numel());
    const at::Tensor of_weight = factor * at::matmul(error.t(), samples.input);
    const at::Tensor of_bias = factor * error.sum(0);
    const double norm =
        std::sqrt(of_weight.square().sum().item<double>() + of_bias.square().sum().item<double>());
    const double clip = max_norm ? std::min(1.0, *max_norm / (norm + 1e-6)) : 1.0;
    weight = weight - kLearningRate * clip * of_weight;
    bias = bias - kLearningRate * clip * of_bias;
    return {error.square().mean().item<double>(), norm};
  }
};

config::Config regression_config(uint64_t steps, std::optional<double> max_norm) {
  auto config = small_config(steps);
  config.model.arch = config::MlpConfig{.hidden_sizes = {}};
  config.optimizer.method = config::SgdConfig{.lr = kLearningRate};
  config.scheduler = {.schedule = config::ConstantScheduler{}, .warmup_steps = 0};
  config.train.max_grad_norm = max_norm;
  config.metrics.log_every_steps = 1;
  return config;
}

struct Trained {
  std::vector<StepValues> steps, expected;
  double weight_error = 0;  // the largest, relative to the largest change of a weight
  uint64_t skipped_steps = 0;
};

// `loss_scale`: with fp16, instead of the initial one.
Trained train_with_formula(const config::Config& config, const std::string& root,
                           std::optional<double> loss_scale = {}) {
  Session run(config, root);
  std::vector<Samples> batches;
  run.is_valid = [&](const feed::ReceivedBatch& batch) {
    batches.push_back(copy_of(batch));
    return true;
  };
  const auto parameters = run.state_->model().named_parameters();
  const at::Tensor weight = parameters["0.weight"], bias = parameters["0.bias"];
  const at::NoGradGuard no_grad;
  LinearRegression formula{weight.to(at::kDouble, false, true), bias.to(at::kDouble, false, true)};
  const at::Tensor initial = formula.weight.clone();
  if (loss_scale) at::Tensor(run.state_->loss_scale()->factor()).fill_(*loss_scale);
  const auto outcome = [&] {
    const at::AutoGradMode with_gradients(true);
    return run.train();
  }();
  EXPECT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(
      run.rows_.back().samples_seen,
      config.train.max_steps * static_cast<uint64_t>(config.train.micro_batch_size *
                                                     config.train.gradient_accumulation_steps));

  Trained trained{.skipped_steps = run.state_->skipped_steps};
  const auto per_step = static_cast<size_t>(config.train.gradient_accumulation_steps);
  for (size_t first = 0; first + per_step <= batches.size(); first += per_step) {
    std::vector<at::Tensor> inputs, targets;
    for (size_t i = first; i < first + per_step; ++i) {
      inputs.push_back(batches[i].input);
      targets.push_back(batches[i].target);
    }
    trained.expected.push_back(
        formula.step({at::cat(inputs), at::cat(targets)}, config.train.max_grad_norm));
  }
  for (const auto& row : run.rows_) trained.steps.push_back({row.loss, row.grad_norm});
  trained.weight_error = ((weight.to(at::kDouble) - formula.weight).abs().max() /
                          (formula.weight - initial).abs().max())
                             .item<double>();
  return trained;
}

void expect_close(const Trained& trained, size_t steps, double tolerance) {
  ASSERT_EQ(trained.steps.size(), steps);
  ASSERT_EQ(trained.expected.size(), steps);
  for (size_t i = 0; i < steps; ++i) {
    EXPECT_NEAR(trained.steps[i].grad_norm / trained.expected[i].grad_norm, 1, tolerance)
        << "step " << i + 1;
    EXPECT_NEAR(trained.steps[i].loss / trained.expected[i].loss, 1, tolerance) << "step " << i + 1;
  }
  EXPECT_LE(trained.weight_error, tolerance);
}

// A limit of the norm that only some of the steps exceed.
double median_norm(const Trained& trained) {
  std::vector<double> norms;
  for (const StepValues& step : trained.expected) norms.push_back(step.grad_norm);
  std::ranges::sort(norms);
  return norms.at(norms.size() / 2);
}

// Single precision rounds at 6e-8; a gradient is a sum of 32 products.
constexpr double kSinglePrecision = 1e-5;

TEST_F(TrainerTest, AccumulatesMeanGradientOfMicroBatches) {
  auto config = regression_config(6, std::nullopt);
  config.train.gradient_accumulation_steps = 4;
  const Trained unclipped = train_with_formula(config, fresh());
  expect_close(unclipped, 6, kSinglePrecision);
  config.train.max_grad_norm = median_norm(unclipped);
  expect_close(train_with_formula(config, fresh()), 6, kSinglePrecision);
}

// Half precision rounds inputs, weights and errors at 5e-4. The scale is below the initial one, of which
// some gradients exceed the largest number of half precision, so no step is skipped.
TEST_F(TrainerTest, ClipsUnscaledGradientsInFp16) {
  constexpr double kHalfPrecision = 1e-2, kLossScale = 1024;
  auto config = regression_config(6, std::nullopt);
  const Trained unclipped = train_with_formula(config, fresh());
  expect_close(unclipped, 6, kSinglePrecision);
  config.train.max_grad_norm = median_norm(unclipped);
  config.train.precision = config::Precision::kFp16;
  const Trained clipped = train_with_formula(config, fresh(), kLossScale);
  EXPECT_EQ(clipped.skipped_steps, 0u);
  expect_close(clipped, 6, kHalfPrecision);
}

}  // namespace
}  // namespace stoker::train
