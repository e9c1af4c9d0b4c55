// Compares the parts of a step that do not depend on a model with results of PyTorch for the same
// gradients (make_steps.py). STOKER_PARITY_STEPS is a newly generated file; without it, the golden
// file is used.
#include <cmath>
#include <cstdlib>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "daemon/train/ema.h"
#include "daemon/train/loss_scale.h"
#include "daemon/train/optimizer.h"
#include "tests/parity/generated.h"
#include "tests/parity/parity_run.h"

namespace stoker::parity {
namespace {

// As in make_steps.py.
constexpr int kGradients = 10;
constexpr int kScaledSteps = 2010;
constexpr int kNumStored = 12;  // number of stored scales, at the start and at the end
constexpr double kDecay = 0.9;
bool overflows(int step) { return step == 0 || step == 3 || step == 4 || step == 9; }

struct Weights : model::Model {
  Weights(const at::Tensor& first, const at::Tensor& second)
      : a(register_parameter("a", first.clone())), b(register_parameter("b", second.clone())) {}
  at::Tensor forward(const at::Tensor& input) override { return input; }
  at::Tensor a, b;
};

class StepParityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const generated = parity::generated("STOKER_PARITY_STEPS");
    auto file = checkpoint::SafetensorsFile::open(
        generated != nullptr ? generated : STOKER_PARITY_GOLDEN "/steps/steps.safetensors");
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    file_ = *std::move(file);
    model_ = std::make_shared<Weights>(golden("a"), golden("b"));
  }
  at::Tensor golden(const std::string& name) const {
    const auto tensor = read_tensor(*file_, name);
    EXPECT_TRUE(tensor.ok()) << tensor.status().to_string();
    return *tensor;
  }
  std::unique_ptr<train::Optimizer> optimizer(const config::SgdConfig& sgd,
                                              const config::TrainConfig& clipping) const {
    return *train::Optimizer::create({.method = sgd}, clipping,
                                     {{"a", model_->a}, {"b", model_->b}});
  }
  void set_gradients(int step, const at::Tensor& factor, bool overflow) const {
    const at::NoGradGuard no_grad;
    model_->a.mutable_grad().copy_(gradients_a_[step % kGradients] * factor);
    model_->b.mutable_grad().copy_(gradients_b_[step % kGradients] * factor);
    if (overflow) model_->a.mutable_grad()[0][0].fill_(std::numeric_limits<float>::infinity());
  }
  void expect_close(const std::string& name, const at::Tensor& actual) const {
    EXPECT_LE((actual.detach() - golden(name)).abs().max().item<double>(), 1e-5) << name;
  }

  std::unique_ptr<checkpoint::SafetensorsFile> file_;
  std::shared_ptr<Weights> model_;
  at::Tensor gradients_a_, gradients_b_;
};

TEST_F(StepParityTest, MatchesGradScalerLossScaleAndSkippedSteps) {
  gradients_a_ = golden("gradients_a");
  gradients_b_ = golden("gradients_b");
  const at::Tensor expected = golden("scales");
  const auto momentum = optimizer({.momentum = 0.9}, {.max_grad_norm = std::nullopt});
  train::LossScale scale{c10::Device(c10::kCPU)};
  momentum->set_lr(0.01);
  for (int step = 0; step < kScaledSteps; ++step) {
    set_gradients(step, scale.factor(), overflows(step));
    momentum->update_unless(scale.unscale(momentum->gradients()));
    scale.update();
    const int stored_index = step < kNumStored ? step : step - (kScaledSteps - 2 * kNumStored);
    if (step >= kNumStored && stored_index < kNumStored) continue;
    EXPECT_EQ(scale.factor().item<float>(), expected[stored_index].item<float>())
        << "step " << step;
  }
  expect_close("scaled/a", model_->a);
  expect_close("scaled/b", model_->b);
}

TEST_F(StepParityTest, MatchesGradientClippingAndEmaWeights) {
  gradients_a_ = golden("gradients_a");
  gradients_b_ = golden("gradients_b");
  const auto sgd = optimizer({}, {.max_grad_norm = 1.0, .max_grad_value = 0.5});
  train::EmaWeights average(*model_, config::TrainConfig{.ema_decay = kDecay});
  for (int step = 0; step < kGradients; ++step) {
    set_gradients(step, at::ones({}), false);
    const double norm = sgd->step(0.1).item<double>();
    const double total_norm = std::sqrt(gradients_a_[step].square().sum().item<double>() +
                                        gradients_b_[step].square().sum().item<double>());
    EXPECT_NEAR(norm, total_norm, 1e-4) << "the norm before any clipping is reported";
    average.update();
  }
  expect_close("clipped/a", model_->a);
  expect_close("clipped/b", model_->b);
  expect_close("average/a", average.tensors().at(0).second);
  expect_close("average/b", average.tensors().at(1).second);
}

}  // namespace
}  // namespace stoker::parity
