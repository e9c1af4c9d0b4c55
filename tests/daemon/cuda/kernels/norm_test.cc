#include "shared/model/norm.h"

#include <cstdint>

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include "shared/model/autocast.h"
#include "tests/daemon/cuda/kernels/host_kernels_scope.h"

namespace stoker::model {
namespace {

constexpr double kEps = 1e-5;

class FusedNormTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(13); }
  const cuda::HostKernelsScope kernels_;
};

at::Tensor rounded(const at::Tensor& tensor) { return tensor.to(at::kBFloat16).to(at::kFloat); }

struct Inputs {
  at::Tensor x, delta, weight, bias;     // delta in BF16
  at::Tensor sum_factor, output_factor;  // the loss is the sum of both outputs multiplied by these

  Inputs(int64_t rows, int64_t width, bool has_bias)
      : x((at::randn({rows, width}) * 2 + 5).requires_grad_()),
        delta(at::randn({rows, width}).to(at::kBFloat16).requires_grad_()),
        weight((at::randn({width}) + 1).requires_grad_()),
        bias(has_bias ? at::randn({width}).requires_grad_() : at::Tensor()),
        sum_factor(rounded(at::randn({rows, width}))),
        output_factor(rounded(at::randn({rows, width}))) {}

  Inputs in_f64() const {
    Inputs other = *this;
    for (at::Tensor* const tensor : {&other.x, &other.delta, &other.weight, &other.bias})
      if (tensor->defined()) *tensor = tensor->detach().to(at::kDouble).requires_grad_();
    return other;
  }
};

at::Tensor norm_in_f64(const at::Tensor& x, const Inputs& inputs) {
  const at::IntArrayRef shape = inputs.weight.sizes();
  return inputs.bias.defined() ? at::layer_norm(x, shape, inputs.weight, inputs.bias, kEps)
                               : at::rms_norm(x, shape, inputs.weight, kEps);
}

// The mean square of the error, compared with that of the values.
void expect_near(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  const double error = (actual.to(at::kDouble) - expected).norm().item<double>();
  EXPECT_LE(error, tolerance * expected.norm().item<double>() + 3e-6);
}

void expect_gradients(const Inputs& inputs, const Inputs& expected) {
  expect_near(inputs.x.grad(), expected.x.grad(), 3e-5);
  expect_near(inputs.weight.grad(), expected.weight.grad(), 3e-5);
  if (inputs.bias.defined()) expect_near(inputs.bias.grad(), expected.bias.grad(), 3e-5);
}

constexpr int64_t kWidths[] = {1, 3, 7, 8, 24, 33, 100, 768, 1000, 4096, 8200, 9001};

TEST_F(FusedNormTest, MatchesLibTorchForAnyWidth) {
  for (const int64_t width : kWidths) {
    for (const bool has_bias : {false, true}) {
      for (const int64_t rows : {1, 5, 131}) {
        if (rows * width > 200'000) continue;
        const Inputs inputs(rows, width, has_bias), expected = inputs.in_f64();
        const at::Tensor wanted = norm_in_f64(expected.x, expected);
        (wanted * expected.output_factor).sum().backward();
        const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
        const at::Tensor output = norm(inputs.x, {inputs.weight, inputs.bias, kEps});
        ASSERT_EQ(output.scalar_type(), at::kBFloat16);
        (output.to(at::kFloat) * inputs.output_factor).sum().backward();
        SCOPED_TRACE(testing::Message() << rows << " x " << width << ", bias " << has_bias);
        expect_near(output, wanted, 0.004);
        expect_gradients(inputs, expected);
      }
    }
  }
}

TEST_F(FusedNormTest, AddsAndMatchesLibTorchForAnyWidth) {
  for (const int64_t width : kWidths) {
    for (const bool has_bias : {false, true}) {
      const Inputs inputs(19, width, has_bias), expected = inputs.in_f64();
      const at::Tensor sum = expected.x + expected.delta, wanted = norm_in_f64(sum, expected);
      (wanted * expected.output_factor + sum * expected.sum_factor).sum().backward();
      const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
      const AddedNorm added = add_norm(inputs.x, inputs.delta, {inputs.weight, inputs.bias, kEps});
      (added.output.to(at::kFloat) * inputs.output_factor + added.sum * inputs.sum_factor)
          .sum()
          .backward();
      SCOPED_TRACE(testing::Message() << width << ", bias " << has_bias);
      EXPECT_TRUE(at::equal(added.sum, inputs.x + inputs.delta));
      expect_near(added.output, wanted, 0.004);
      expect_gradients(inputs, expected);
      ASSERT_EQ(inputs.delta.grad().scalar_type(), at::kBFloat16);
      EXPECT_TRUE(at::equal(inputs.delta.grad(), inputs.x.grad().to(at::kBFloat16)));
    }
  }
}

// As in a block with the norm after the addition.
TEST_F(FusedNormTest, KeepsResidualStreamsInF32) {
  const Inputs inputs(3, 16, true);
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  const NormWeights weights{inputs.weight, inputs.bias, kEps, /*is_residual=*/true};
  const at::Tensor sum = inputs.x + inputs.delta;
  EXPECT_TRUE(at::equal(norm(sum, weights), at::layer_norm(sum, inputs.weight.sizes(),
                                                           inputs.weight, inputs.bias, kEps)));
  const AddedNorm added = add_norm(inputs.x, inputs.delta, weights);
  EXPECT_EQ(added.output.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(added.output, norm(sum, weights)));
}

TEST_F(FusedNormTest, SupportsLossThatDependsOnOneOutput) {
  const Inputs inputs(3, 16, true), other(3, 16, true);
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  add_norm(inputs.x, inputs.delta, {inputs.weight, inputs.bias, kEps}).sum.sum().backward();
  EXPECT_TRUE(at::equal(inputs.x.grad(), at::ones({3, 16})));
  EXPECT_EQ(inputs.weight.grad().count_nonzero().item<int64_t>(), 0);
  const Inputs expected = other.in_f64();
  norm_in_f64(expected.x + expected.delta, expected).sum().backward();
  add_norm(other.x, other.delta, {other.weight, other.bias, kEps})
      .output.to(at::kFloat)
      .sum()
      .backward();
  expect_gradients(other, expected);
}

bool is_vector_address(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

TEST_F(FusedNormTest, CopiesGradientsThatVectorsCannotRead) {
  static int calls = 0;
  calls = 0;
  KernelTable table = cuda::host_kernels();
  table.norm_backward = [](const NormGradients& gradients) {
    ++calls;
    EXPECT_TRUE(is_vector_address(gradients.output_gradient));
    EXPECT_TRUE(is_vector_address(gradients.maybe_sum_gradient));
    cuda::host_kernels().norm_backward(gradients);
  };
  use_fused_kernels(c10::DeviceType::CPU, table);
  const Inputs inputs(3, 16, true), expected = inputs.in_f64();
  const auto at_odd_offset = [](const at::Tensor& values, at::ScalarType dtype) {
    const at::Tensor memory = at::ones({values.numel() + 1}, dtype);
    return memory.narrow(0, 1, values.numel()).view(values.sizes()).copy_(values);
  };
  {
    const at::Tensor sum = expected.x + expected.delta, wanted = norm_in_f64(sum, expected);
    (wanted * expected.output_factor + sum * expected.sum_factor).sum().backward();
  }
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  const AddedNorm added = add_norm(inputs.x, inputs.delta, {inputs.weight, inputs.bias, kEps});
  torch::autograd::backward({added.output, added.sum},
                            {at_odd_offset(inputs.output_factor, at::kBFloat16),
                             at_odd_offset(inputs.sum_factor, at::kFloat)});
  EXPECT_EQ(calls, 1);
  expect_gradients(inputs, expected);
  use_fused_kernels(c10::DeviceType::CPU, cuda::host_kernels());
}

TEST_F(FusedNormTest, UsesLibTorchForOtherInputs) {
  const Inputs inputs(4, 16, true);
  const NormWeights weights{inputs.weight, inputs.bias, kEps};
  EXPECT_EQ(norm(inputs.x, weights).scalar_type(), at::kFloat);  // without autocast
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  const at::Tensor transposed = at::randn({16, 4}).t();
  EXPECT_EQ(norm(transposed, weights).scalar_type(), at::kFloat);
  const at::Tensor delta = at::randn({4, 16});  // F32: only the sum is LibTorch's
  EXPECT_TRUE(at::equal(add_norm(inputs.x, delta, weights).sum, inputs.x + delta));
  EXPECT_EQ(norm(at::randn({0, 16}), weights).numel(), 0);
}

}  // namespace
}  // namespace stoker::model
