// What a step changes, and that a step that is undone leaves nothing of it. The expected statistics of batch norm
// are PyTorch's formula over the batches that count: running = 0.9 * running + 0.1 * of the batch.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/var.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/train/device_engine.h"
#include "daemon/train/step_buffers.h"
#include "tests/daemon/train/fake_queue.h"
#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

using config::OnNonfinite;
using testing::HasSubstr;

constexpr int64_t kWidth = 8, kBatch = 4;
constexpr double kMomentum = 0.1;

// Batch norm of the inputs themselves, so that its statistics do not depend on the weights.
config::Config norm_config(uint64_t steps, OnNonfinite policy, int64_t accumulate = 1) {
  auto config = small_config(steps);
  config.model.arch =
      config::SequentialConfig{.layers = {config::BatchNormLayer{}, config::LinearLayer{}}};
  config.optimizer.method = config::SgdConfig{.lr = 0.01, .momentum = 0.9};
  config.scheduler = {.schedule = config::ConstantScheduler{}, .warmup_steps = 0};
  config.train.on_nonfinite = policy;
  config.train.gradient_accumulation_steps = accumulate;
  config.metrics.log_every_steps = 1;
  return config;
}

struct Statistics {
  at::Tensor mean = at::zeros({kWidth}), variance = at::ones({kWidth});
  int64_t batches = 0;

  void add(const at::Tensor& input) {
    mean = mean * (1 - kMomentum) + input.mean(0) * kMomentum;
    variance = variance * (1 - kMomentum) + at::var(input, 0) * kMomentum;  // unbiased
    ++batches;
  }
};

at::Tensor input_of(const feed::ReceivedBatch& batch) {
  const auto bytes = batch.tensors[0];
  return at::from_blob(const_cast<std::byte*>(bytes.data()), {kBatch, kWidth}, at::kFloat).clone();
}

void expect_statistics(const Statistics& expected, const model::Model& model) {
  const auto buffers = model.named_buffers();
  EXPECT_TRUE(at::allclose(buffers["0.running_mean"], expected.mean, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(buffers["0.running_var"], expected.variance, 1e-5, 1e-6));
  EXPECT_EQ(buffers["0.num_batches_tracked"].item<int64_t>(), expected.batches);
}

ModelContext on(bool is_device) {
  ModelContext around;
  if (!is_device) return around;
  around.make_engine = [](StepEngine::Calls calls) {
    constexpr size_t kSlotBytes = 1 << 16;
    return Result<std::unique_ptr<StepEngine>>(std::make_unique<DeviceEngine>(
        std::make_unique<FakeQueue>(std::make_shared<FakeQueue::Log>(), kSlotBytes),
        std::vector<std::unique_ptr<PinnedMemory>>(),
        DeviceEngineOptions{.slots = 2, .captures = true}, std::move(calls)));
  };
  return around;
}

// On the CPU, and on a device, whose host does not know which steps are skipped.
class StepStateTest : public TrainerTest, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Engines, StepStateTest, testing::Bool(),
                         [](const auto& each) { return each.param ? "Device" : "Cpu"; });

TEST_P(StepStateTest, KeepsStatisticsOfBatchNormOnSkippedStep) {
  auto config = norm_config(12, OnNonfinite::kSkipStep);
  config.train.ema_decay = 0.5;
  Session run(
      config, root_, [](uint64_t sample) { return sample % 16 == 5; }, on(GetParam()));
  Statistics expected;
  std::vector<bool> is_skipped;
  run.is_valid = [&](const feed::ReceivedBatch& batch) {
    const at::Tensor input = input_of(batch);
    is_skipped.push_back(!input.isfinite().all().item<bool>());
    if (!is_skipped.back()) expected.add(input);
    return true;
  };
  ASSERT_TRUE(run.train().ok());
  ASSERT_GT(run.state_->skipped_steps, 0u);
  ASSERT_GT(expected.batches, 0);
  expect_statistics(expected, run.state_->model());
  ASSERT_EQ(run.rows_.size(), is_skipped.size());
  for (size_t step = 0; step < is_skipped.size(); ++step) {
    EXPECT_EQ(std::isnan(run.rows_[step].loss), is_skipped[step]) << step;
    EXPECT_EQ(std::isnan(run.rows_[step].grad_norm), is_skipped[step])
        << "the norm of the step before, after step " << step;
  }
}

TEST_P(StepStateTest, LeavesAllStateOnSkippedStep) {
  auto config = norm_config(3, OnNonfinite::kSkipStep, /*accumulate=*/2);
  config.train.ema_decay = 0.5;
  Session run(
      config, root_, [](uint64_t) { return true; }, on(GetParam()));
  // An average that differs from the parameters.
  const at::NoGradGuard no_grad;
  for (const auto& [name, average] : run.state_->ema_weights()->averages()) average.add_(1);
  std::vector<at::Tensor> before;
  const auto tensors = [&run] {
    model::NamedTensors all = model::named_tensors(run.state_->model());
    for (const auto& each : run.state_->optimizer().state()) all.push_back(each);
    for (const auto& each : run.state_->ema_weights()->averages()) all.push_back(each);
    return all;
  };
  for (const auto& [name, tensor] : tensors()) before.push_back(tensor.clone());
  const auto outcome = [&] {
    const at::AutoGradMode with_gradients(true);
    return run.train();
  }();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(run.state_->skipped_steps, 3u);
  const auto after = tensors();
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_TRUE(at::equal(after[i].second, before[i])) << after[i].first;
}

// An input so large that its square, and thus the variance, overflows. The outputs, the loss and the gradient stay
// finite, the statistics do not.
constexpr float kOverflowing = 3e20F;

TEST_P(StepStateTest, SavesNoNonfiniteBufferOfStepWithFiniteLoss) {
  constexpr uint64_t kPoisonedStep = 5;
  const auto train = [&](OnNonfinite policy) {
    auto config = norm_config(8, policy);
    config.checkpoint.save_every_steps = 1;
    Session run(config, fresh(), kNoPoison, on(GetParam()));
    wait_for_saves(run);
    run.is_valid = [&](const feed::ReceivedBatch& batch) {
      if (batch.ticket + 1 == kPoisonedStep)  // before it is trained on
        std::memcpy(const_cast<std::byte*>(batch.tensors[0].data()), &kOverflowing,
                    sizeof kOverflowing);
      return true;
    };
    auto outcome = run.train();
    const bool skips = policy == OnNonfinite::kSkipStep;
    for (const uint64_t step : run.saved()) EXPECT_TRUE(skips || step < kPoisonedStep) << step;
    for (const auto& [name, buffer] : run.state_->buffers().finite())
      EXPECT_EQ(buffer.isfinite().all().item<bool>(), skips || name.ends_with("mean")) << name;
    EXPECT_EQ(run.state_->skipped_steps, skips ? 1u : 0u);
    return outcome;
  };
  EXPECT_EQ(*train(OnNonfinite::kSkipStep), TrainerOutcome::kFinished);
  EXPECT_EQ(*train(OnNonfinite::kRollback), TrainerOutcome::kRolledBack);
  const auto failed = train(OnNonfinite::kFail);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(failed.status().message(), HasSubstr("a statistic of batch norm"));
}

// What a finite gradient leads to can overflow, too: here the second moment, whose root is finite.
TEST_P(StepStateTest, SavesNoNonfiniteOptimizerState) {
  auto config = norm_config(4, OnNonfinite::kFail);
  config.optimizer.method = config::AdamWConfig{.lr = 0.001};
  Session run(config, root_, kNoPoison, on(GetParam()));
  run.on_row = [&run](const metrics::TrainMetrics& row) {
    if (row.step != 2) return;
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : run.state_->optimizer().state())
      if (name == "exp_avg_sq.1.bias") tensor.fill_(std::numeric_limits<float>::infinity());
  };
  const auto outcome = run.train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.status().message(),
              HasSubstr("the optimizer's exp_avg_sq.1.bias is not finite at step 4"));
  EXPECT_TRUE(run.saved().empty());
}

TEST_P(StepStateTest, LeavesNoTraceOfUnfinishedStep) {
  constexpr int64_t kAccumulate = 4;
  constexpr uint64_t kSteps = 3;
  const auto train = [&](uint64_t stop_before_ticket) {
    auto config = norm_config(100, OnNonfinite::kFail, kAccumulate);
    Session run(config, fresh(), kNoPoison, on(GetParam()));
    Statistics expected;
    run.is_valid = [&](const feed::ReceivedBatch& batch) {
      if (batch.ticket == stop_before_ticket) return false;
      if (batch.ticket < kSteps * kAccumulate) expected.add(input_of(batch));
      return true;
    };
    EXPECT_TRUE(run.train().ok());
    EXPECT_EQ(run.state_->step, kSteps);
    expect_statistics(expected, run.state_->model());
    return run.model_sha256();
  };
  const std::string between_steps = train(kSteps * kAccumulate);
  for (uint64_t within = 1; within < kAccumulate; ++within)
    EXPECT_EQ(train(kSteps * kAccumulate + within), between_steps) << within;
}

// Buffers of several dtypes, one of which has -inf from the start, as an attention mask.
class MaskedModel : public model::Model {
 public:
  MaskedModel() {
    register_parameter("weight", at::ones({2}));
    statistic = register_buffer("statistic", at::ones({2, 2}));
    count = register_buffer("count", at::zeros({}, at::kLong));
    mask = register_buffer("mask", at::full({3}, -std::numeric_limits<float>::infinity()));
    register_buffer("empty", at::zeros({0}));
  }
  at::Tensor forward(const at::Tensor& input) override { return input; }

  at::Tensor statistic, count, mask;
};

TEST(StepBuffersTest, RestoresValuesFromStartOfStep) {
  const MaskedModel model;
  StepBuffers buffers(model);
  buffers.copy();  // keeps nothing yet
  buffers.keep_copies();
  const auto change = [&](double value) {
    model.statistic.fill_(value);
    model.count.add_(1);
    model.mask.fill_(value);
  };
  const auto expect = [&](float statistic, int64_t count, float mask) {
    EXPECT_TRUE(at::equal(model.statistic, at::full({2, 2}, statistic)));
    EXPECT_EQ(model.count.item<int64_t>(), count);
    EXPECT_TRUE(at::equal(model.mask, at::full({3}, mask)));
  };
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  buffers.copy();
  change(5);
  buffers.restore_if(at::zeros({}));
  expect(5, 1, 5);
  buffers.restore_if(at::ones({}));
  expect(1, 0, kMasked);
  change(7);
  buffers.swap();
  expect(1, 0, kMasked);
  buffers.swap();
  expect(7, 1, 7);
  buffers.restore();
  expect(1, 0, kMasked);
}

TEST(StepBuffersTest, FindsNonfiniteValuesThatWereNotThereAtStart) {
  const MaskedModel model;
  const StepBuffers buffers(model);
  ASSERT_EQ(buffers.finite().size(), 1u);
  EXPECT_EQ(buffers.found_nonfinite().item<float>(), 0);
  model.statistic.fill_(std::numeric_limits<float>::max());  // the sum overflows
  EXPECT_EQ(buffers.found_nonfinite().item<float>(), 0);
  for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    model.statistic.fill_(1);
    model.statistic[1][0].fill_(value);
    EXPECT_EQ(buffers.found_nonfinite().item<float>(), 1) << value;
  }
}

}  // namespace
}  // namespace stoker::train
