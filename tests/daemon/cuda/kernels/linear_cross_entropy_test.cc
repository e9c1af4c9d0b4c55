#include "shared/model/linear_cross_entropy.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "shared/model/autocast.h"
#include "tests/daemon/cuda/kernels/host_kernels_scope.h"

namespace stoker::model {
namespace {

constexpr int64_t kIgnored = -100;

class LinearCrossEntropyTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(3); }
  const cuda::HostKernelsScope kernels_;
};

struct Layer {
  at::Tensor features, weight, labels;
};

// Values that BF16 represents, so that only the products are rounded.
Layer random_layer(int64_t rows, int64_t width, int64_t classes) {
  const auto rounded = [](const at::Tensor& tensor) {
    return tensor.to(at::kBFloat16).to(at::kFloat).requires_grad_();
  };
  return {rounded(at::randn({rows, width})), rounded(at::randn({classes, width}) * 0.3),
          at::randint(0, classes, {rows}, at::kLong)};
}

void expect_near(const at::Tensor& actual, const at::Tensor& expected) {
  const double error = (actual.to(at::kDouble) - expected).norm().item<double>();
  EXPECT_LT(error, 0.01 * expected.norm().item<double>() + 1e-9);
}

// Compares the loss and its gradients with those of LibTorch's operators in F64.
void expect_same_as_in_f64(const Layer& layer, int64_t max_chunk_bytes, double factor = 1) {
  const at::Tensor features = layer.features.detach().to(at::kDouble).requires_grad_();
  const at::Tensor weight = layer.weight.detach().to(at::kDouble).requires_grad_();
  const at::Tensor wanted = at::cross_entropy_loss(at::linear(features, weight), layer.labels, {},
                                                   at::Reduction::Mean, kIgnored);
  (wanted * factor).backward();
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  const at::Tensor loss =
      linear_cross_entropy(layer.features, layer.weight, layer.labels, kIgnored, max_chunk_bytes);
  ASSERT_EQ(loss.scalar_type(), at::kFloat);
  (loss * factor).backward();
  EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 0.01 * wanted.item<double>());
  ASSERT_EQ(layer.weight.grad().scalar_type(), at::kFloat);
  expect_near(layer.features.grad(), features.grad());
  expect_near(layer.weight.grad(), weight.grad());
}

TEST_F(LinearCrossEntropyTest, MatchesLibTorchWithChunksOfAnySize) {
  for (const int64_t chunk_bytes : {int64_t{1}, int64_t{3 * 40 * 2}, int64_t{1} << 20}) {
    for (const int64_t classes : {3, 33, 40}) {
      const Layer layer = random_layer(10, 12, classes);
      layer.labels[2] = kIgnored;
      expect_same_as_in_f64(layer, chunk_bytes);
    }
  }
}

TEST_F(LinearCrossEntropyTest, MultipliesGradientsByThatOfTheLoss) {
  expect_same_as_in_f64(random_layer(6, 8, 20), 1 << 20, 1.0 / 3);
}

TEST_F(LinearCrossEntropyTest, ReturnsZeroIfAllLabelsAreIgnored) {
  const Layer layer = random_layer(4, 8, 20);
  layer.labels.fill_(kIgnored);
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  const at::Tensor loss =
      linear_cross_entropy(layer.features, layer.weight, layer.labels, kIgnored);
  loss.backward();
  EXPECT_EQ(loss.item<float>(), 0);
  EXPECT_EQ(layer.weight.grad().count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(layer.features.grad().count_nonzero().item<int64_t>(), 0);
}

TEST_F(LinearCrossEntropyTest, ComputesOnlyNeededGradients) {
  const Layer layer = random_layer(4, 8, 20);
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  const at::Tensor loss =
      linear_cross_entropy(layer.features.detach(), layer.weight, layer.labels, kIgnored);
  loss.backward();
  EXPECT_TRUE(layer.weight.grad().defined());
  EXPECT_FALSE(layer.features.grad().defined());
  const at::NoGradGuard no_grad;
  const at::Tensor again =
      linear_cross_entropy(layer.features, layer.weight, layer.labels, kIgnored);
  EXPECT_FALSE(again.requires_grad());
  EXPECT_EQ(again.item<float>(), loss.item<float>());
}

TEST_F(LinearCrossEntropyTest, IsUsedUnderAutocastToBf16Only) {
  const c10::Device cpu(c10::DeviceType::CPU);
  EXPECT_FALSE(has_linear_cross_entropy(cpu));
  {
    const Autocast autocast(at::kHalf, cpu.type());
    EXPECT_FALSE(has_linear_cross_entropy(cpu));
  }
  const Autocast autocast(at::kBFloat16, cpu.type());
  EXPECT_TRUE(has_linear_cross_entropy(cpu));
  use_fused_kernels(cpu.type(), {});
  EXPECT_FALSE(has_linear_cross_entropy(cpu));
}

}  // namespace
}  // namespace stoker::model
