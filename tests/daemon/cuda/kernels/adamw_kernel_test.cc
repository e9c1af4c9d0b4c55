#include "daemon/cuda/kernels/adamw_kernel.h"

#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "daemon/cuda/kernels/host_kernels.h"

namespace stoker::cuda {
namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kWeightDecay = 0.1, kLr = 3e-3;

struct State {
  at::Tensor parameter, gradient, exp_avg, exp_avg_sq, step, copy;
};

// Random tensors; with an odd `offset` into their memory, so that vectors cannot be used.
State random_state(int64_t size, float step, int64_t offset = 0) {
  const auto floats = [&](const at::Tensor& values) { return values.narrow(0, offset, size); };
  return {.parameter = floats(at::randn({size + offset})),
          .gradient = floats(at::randn({size + offset})),
          .exp_avg = floats(at::randn({size + offset})),
          .exp_avg_sq = floats(at::rand({size + offset})),
          .step = at::full({}, step),
          .copy = floats(at::zeros({size + offset}, at::kBFloat16))};
}

std::vector<model::AdamwTensor> pointers(const std::vector<State>& states) {
  std::vector<model::AdamwTensor> tensors;
  for (const State& state : states)
    tensors.push_back({.parameter = state.parameter.mutable_data_ptr<float>(),
                       .gradient = state.gradient.const_data_ptr<float>(),
                       .exp_avg = state.exp_avg.mutable_data_ptr<float>(),
                       .exp_avg_sq = state.exp_avg_sq.mutable_data_ptr<float>(),
                       .step = state.step.const_data_ptr<float>(),
                       .maybe_copy = reinterpret_cast<model::Bf16*>(state.copy.data_ptr()),
                       .size = state.parameter.numel()});
  return tensors;
}

void update(const std::vector<State>& states, const at::Tensor& grad_scale = {},
            const at::Tensor& found_inf = {}, const at::Tensor& lr = {}) {
  const auto maybe = [](const at::Tensor& scalar) {
    return scalar.defined() ? scalar.const_data_ptr<float>() : nullptr;
  };
  const std::vector<model::AdamwTensor> tensors = pointers(states);
  host_kernels().adamw(tensors.data(), static_cast<int64_t>(tensors.size()),
                       {.beta1 = kBeta1,
                        .beta2 = kBeta2,
                        .eps = kEps,
                        .weight_decay = kWeightDecay,
                        .lr = lr.defined() ? -1 : kLr,
                        .maybe_lr = maybe(lr),
                        .maybe_grad_scale = maybe(grad_scale),
                        .maybe_found_inf = maybe(found_inf)});
}

// LibTorch's kernel in F64.
State expected(const State& before, double grad_scale = 1) {
  const auto doubles = [](const at::Tensor& tensor) { return tensor.to(at::kDouble).clone(); };
  State after{.parameter = doubles(before.parameter),
              .gradient = doubles(before.gradient) / grad_scale,
              .exp_avg = doubles(before.exp_avg),
              .exp_avg_sq = doubles(before.exp_avg_sq),
              .step = before.step.clone(),
              .copy = {}};
  at::_fused_adamw_(after.parameter, after.gradient, after.exp_avg, after.exp_avg_sq,
                    at::TensorList{}, after.step, kLr, kBeta1, kBeta2, kWeightDecay, kEps,
                    /*amsgrad=*/false, /*maximize=*/false);
  return after;
}

void expect_near(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  const at::Tensor error =
      (actual.to(at::kDouble) - expected).abs() / expected.abs().clamp_min(1e-2);
  ASSERT_TRUE(error.numel() == 0 || error.max().item<double>() < tolerance)
      << error.numel() << " elements, error " << error.max().item<double>();
}

void expect_updated(const State& after, const State& expected) {
  expect_near(after.exp_avg, expected.exp_avg, 1e-5);
  expect_near(after.exp_avg_sq, expected.exp_avg_sq, 1e-5);
  expect_near(after.parameter, expected.parameter, 1e-5);
  EXPECT_TRUE(at::equal(after.copy, after.parameter.to(at::kBFloat16)));
}

class AdamwKernelTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(7); }
};

TEST_F(AdamwKernelTest, MatchesLibTorchForSizesAroundVectorsAndChunks) {
  constexpr int64_t kChunk = AdamwLaunch::kChunk;
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{4}, int64_t{5},
                             int64_t{1023}, kChunk - 1, kChunk, kChunk + 1, 3 * kChunk + 7}) {
    for (const int64_t offset : {0, 1, 4}) {
      for (const float step : {1.0f, 2.0f, 1000.0f}) {
        const State state = random_state(size, step, offset);
        const State wanted = expected(state);
        update({state});
        expect_updated(state, wanted);
      }
    }
  }
}

TEST_F(AdamwKernelTest, UpdatesMoreTensorsThanOneLaunchHolds) {
  std::vector<State> states, wanted;
  for (int i = 0; i < 2 * AdamwLaunch::kMaxTensors + 5; ++i) {
    states.push_back(random_state(i % 7 == 3 ? 0 : 37 * i + 1, static_cast<float>(i + 1), i % 2));
    wanted.push_back(expected(states.back()));
  }
  update(states);
  for (size_t i = 0; i < states.size(); ++i) expect_updated(states[i], wanted[i]);
}

TEST_F(AdamwKernelTest, IgnoresEmptyTensorsAtTheEndOfTheList) {
  std::vector<State> states;
  for (int i = 0; i < AdamwLaunch::kMaxTensors; ++i) states.push_back(random_state(3, 1));
  states.push_back(random_state(0, 1));
  const State first = expected(states.front());
  update(states);
  expect_updated(states.front(), first);
  update({random_state(0, 1)});
}

TEST_F(AdamwKernelTest, DividesGradientByScaleAndKeepsIt) {
  const State state = random_state(1001, 3);
  const at::Tensor gradient = state.gradient.clone();
  const State wanted = expected(state, 2.5);
  update({state}, at::full({}, 2.5f));
  expect_updated(state, wanted);
  EXPECT_TRUE(at::equal(state.gradient, gradient));
}

// 1 - 1e-7 is 1 - 1.19e-7 in F32.
TEST_F(AdamwKernelTest, DecaysWeightsAtSmallLearningRates) {
  State state = random_state(100'000, 1);
  state.gradient.zero_();
  state.exp_avg.zero_();
  const at::Tensor before = state.parameter.abs().to(at::kDouble).sum();
  const std::vector<model::AdamwTensor> tensors = pointers({state});
  host_kernels().adamw(tensors.data(), 1,
                       {.beta1 = kBeta1,
                        .beta2 = kBeta2,
                        .eps = kEps,
                        .weight_decay = 0.01,
                        .lr = 1e-5,
                        .maybe_lr = nullptr,
                        .maybe_grad_scale = nullptr,
                        .maybe_found_inf = nullptr});
  const at::Tensor after = state.parameter.abs().to(at::kDouble).sum();
  // Each value is rounded to F32.
  EXPECT_NEAR(((before - after) / before).item<double>(), 1e-7, 0.08e-7);
}

TEST_F(AdamwKernelTest, ReadsLearningRateFromMemory) {
  const State state = random_state(10, 3);
  const State wanted = expected(state);
  update({state}, {}, {}, at::full({}, static_cast<float>(kLr)));
  expect_updated(state, wanted);
}

TEST_F(AdamwKernelTest, ChangesNothingIfInfWasFound) {
  const State state = random_state(5000, 0);  // the first step, which was not counted
  const State before{.parameter = state.parameter.clone(),
                     .gradient = {},
                     .exp_avg = state.exp_avg.clone(),
                     .exp_avg_sq = state.exp_avg_sq.clone(),
                     .step = {},
                     .copy = state.copy.clone()};
  update({state}, {}, at::full({}, 1.0f));
  EXPECT_TRUE(at::equal(state.parameter, before.parameter));
  EXPECT_TRUE(at::equal(state.exp_avg, before.exp_avg));
  EXPECT_TRUE(at::equal(state.exp_avg_sq, before.exp_avg_sq));
  EXPECT_TRUE(at::equal(state.copy, before.copy));
  const State counted = random_state(5000, 1);
  const State wanted = expected(counted);
  update({counted}, {}, at::zeros({}));
  expect_updated(counted, wanted);
}

TEST_F(AdamwKernelTest, DoesNotWriteOutsideOfTensors) {
  const State whole = random_state(3 * AdamwLaunch::kChunk, 1);
  const at::Tensor before = whole.parameter.clone();
  State part = whole;
  for (at::Tensor* const tensor :
       {&part.parameter, &part.gradient, &part.exp_avg, &part.exp_avg_sq, &part.copy})
    *tensor = tensor->narrow(0, 8, AdamwLaunch::kChunk + 2);
  update({part});
  EXPECT_TRUE(at::equal(whole.parameter.narrow(0, 0, 8), before.narrow(0, 0, 8)));
  const int64_t end = 8 + AdamwLaunch::kChunk + 2, rest = before.numel() - end;
  EXPECT_TRUE(at::equal(whole.parameter.narrow(0, end, rest), before.narrow(0, end, rest)));
  EXPECT_EQ(whole.copy.narrow(0, end, rest).count_nonzero().item<int64_t>(), 0);
}

}  // namespace
}  // namespace stoker::cuda
