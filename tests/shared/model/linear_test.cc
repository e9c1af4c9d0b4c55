// linear() and its oneDNN path return the same as LibTorch's Linear layer.
#include "shared/model/linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

namespace stoker::model {
namespace {

at::Tensor leaf(at::IntArrayRef shape) { return at::randn(shape).requires_grad_(); }

// The largest difference, relative to the largest element.
double apart(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_EQ(actual.sizes(), expected.sizes());
  return ((actual - expected).abs().max() / expected.abs().max()).item<double>();
}

struct Shape {
  std::vector<int64_t> input;
  int64_t outputs;
  bool has_bias;
};

class OnednnLinearShapeTest : public ::testing::TestWithParam<Shape> {};

TEST_P(OnednnLinearShapeTest, MatchesLibTorchValuesAndGradients) {
  const auto& [shape, outputs, has_bias] = GetParam();
  at::Tensor input = leaf(shape), weight = leaf({outputs, shape.back()});
  at::Tensor bias = has_bias ? leaf({outputs}) : at::Tensor();
  const at::Tensor ours = onednn_linear(input, weight, bias);
  const at::Tensor theirs = at::linear(input, weight, bias);
  EXPECT_LT(apart(ours.detach(), theirs.detach()), 1e-5);
  const at::Tensor gradient = at::randn(theirs.sizes());
  std::vector<at::Tensor> leaves{input, weight};
  if (has_bias) leaves.push_back(bias);
  ours.backward(gradient);
  std::vector<at::Tensor> of_ours;
  for (at::Tensor& each : leaves) {
    of_ours.push_back(each.grad().clone());
    each.mutable_grad() = at::Tensor();
  }
  theirs.backward(gradient);
  for (size_t i = 0; i < leaves.size(); ++i)
    EXPECT_LT(apart(of_ours[i], leaves[i].grad()), 1e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Shapes, OnednnLinearShapeTest,
                         ::testing::Values(Shape{{64, 96}, 40, true}, Shape{{4, 32, 48}, 80, true},
                                           Shape{{2, 3, 16, 24}, 8, false},
                                           Shape{{1, 7}, 1, true}));

TEST(OnednnLinearTest, AcceptsNoncontiguousTensors) {
  const at::Tensor input = at::randn({48, 2, 32}).transpose(0, 1);
  const at::Tensor weight = at::randn({24, 64}).slice(1, 0, 64, 2);
  EXPECT_LT(apart(onednn_linear(input, weight, {}), at::linear(input, weight)), 1e-5);
}

TEST(OnednnLinearTest, ComputesNoGradientForFrozenWeightOrInput) {
  const at::Tensor input = at::randn({8, 16}), weight = leaf({4, 16}), frozen = at::randn({4, 16});
  onednn_linear(input, weight, {}).sum().backward();
  EXPECT_FALSE(input.grad().defined());
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_FALSE(onednn_linear(input, frozen, {}).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(onednn_linear(input, weight, {}).requires_grad());
}

TEST(OnednnLinearTest, ReleasesSavedTensorsAfterBackward) {
  const at::Tensor input = leaf({8, 16}), weight = leaf({4, 16});
  const at::Tensor output = onednn_linear(input, weight, {}).sum();
  output.backward();
  EXPECT_THROW(output.backward(), c10::Error) << "a second time it has nothing to compute with";
}

TEST(OnednnLinearTest, DetectsInplaceWeightChangeBeforeBackward) {
  const at::Tensor input = leaf({8, 16});
  at::Tensor weight = leaf({4, 16});
  const at::Tensor output = onednn_linear(input, weight, {}).sum();
  {
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  }
  EXPECT_THROW(output.backward(), c10::Error);
}

TEST(OnednnLinearTest, AllowsInplaceChangeOfOutput) {
  const at::Tensor input = leaf({2, 3, 16}), weight = leaf({4, 16});
  onednn_linear(input, weight, {}).mul_(3).sum().backward();
  const at::Tensor found = weight.grad().clone();
  weight.mutable_grad() = at::Tensor();
  at::linear(input, weight).mul(3).sum().backward();
  EXPECT_LT(apart(found, weight.grad()), 1e-5);
}

TEST(LinearTest, MatchesLayerForAnySize) {
  torch::nn::Linear layer(256, 256);
  for (const int64_t rows : {1, 512}) {
    const at::Tensor input = at::randn({rows, 256});
    const at::NoGradGuard no_grad;
    EXPECT_LT(apart(linear(layer, input), layer(input)), 1e-5) << rows;
  }
}

}  // namespace
}  // namespace stoker::model
