#include <cstdint>

#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "shared/model/autocast.h"
#include "shared/model/rope.h"
#include "shared/model/swiglu.h"
#include "tests/daemon/cuda/kernels/host_kernels_scope.h"

namespace stoker::model {
namespace {

class FusedElementwiseTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(17); }
  const cuda::HostKernelsScope kernels_;
  const Autocast autocast_{at::kBFloat16, c10::DeviceType::CPU};
};

at::Tensor bf16(const at::Tensor& tensor) {
  return tensor.detach().to(at::kBFloat16).requires_grad_();
}
at::Tensor f64(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).requires_grad_();
}

// Rounded once to BF16.
void expect_rounded(const at::Tensor& actual, const at::Tensor& expected) {
  ASSERT_EQ(actual.scalar_type(), at::kBFloat16);
  const at::Tensor error = (actual.to(at::kDouble) - expected).abs();
  EXPECT_TRUE(error.le(expected.abs() / 256 * 1.01 + 1e-6).all().item<bool>())
      << error.max().item<double>();
}

TEST_F(FusedElementwiseTest, SwigluMatchesLibTorchForAnySize) {
  for (const int64_t size : {1, 7, 8, 9, 2047, 2048, 2049, 5000}) {
    const at::Tensor gate = bf16(at::randn({size}) * 4), up = bf16(at::randn({size}));
    const at::Tensor factor = bf16(at::randn({size})).detach();
    const at::Tensor gate64 = f64(gate), up64 = f64(up);
    const at::Tensor wanted = at::silu(gate64) * up64;
    (wanted * factor.to(at::kDouble)).sum().backward();
    const at::Tensor output = swiglu(gate, up);
    output.backward(factor);
    expect_rounded(output, wanted);
    expect_rounded(gate.grad(), gate64.grad());
    expect_rounded(up.grad(), up64.grad());
  }
}

TEST_F(FusedElementwiseTest, SwigluCopiesGradientThatVectorsCannotRead) {
  static int calls = 0;
  calls = 0;
  KernelTable table = cuda::host_kernels();
  table.swiglu_backward = [](const SwigluGradients& gradients) {
    ++calls;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(gradients.output_gradient) % 16, 0u);
    cuda::host_kernels().swiglu_backward(gradients);
  };
  use_fused_kernels(c10::DeviceType::CPU, table);
  const at::Tensor gate = bf16(at::randn({64})), up = bf16(at::randn({64}));
  const at::Tensor gate64 = f64(gate), up64 = f64(up);
  const at::Tensor factor = bf16(at::randn({65})).detach().narrow(0, 1, 64);
  (at::silu(gate64) * up64 * factor.to(at::kDouble)).sum().backward();
  swiglu(gate, up).backward(factor);
  EXPECT_EQ(calls, 1);
  expect_rounded(gate.grad(), gate64.grad());
  use_fused_kernels(c10::DeviceType::CPU, cuda::host_kernels());
}

TEST_F(FusedElementwiseTest, SwigluSaturatesForLargeValues) {
  const at::Tensor gate = bf16(at::randn({64}) * 1e4), up = bf16(at::randn({64}));
  const at::Tensor output = swiglu(gate, up);
  output.sum().backward();
  EXPECT_TRUE(output.isfinite().all().item<bool>());
  EXPECT_TRUE(gate.grad().isfinite().all().item<bool>());
}

TEST_F(FusedElementwiseTest, SwigluUsesLibTorchForOtherDtypes) {
  EXPECT_EQ(swiglu(at::randn({4}), at::randn({4})).scalar_type(), at::kFloat);
}

TEST_F(FusedElementwiseTest, RopeMatchesLibTorchForAnyShapeAndLayout) {
  for (const int64_t half : {1, 3, 8, 12, 32}) {
    for (const bool is_transposed : {false, true}) {
      const int64_t batch = 2, heads = 3, time = 70;
      const at::Tensor values = is_transposed
                                    ? at::randn({batch, time, heads, 2 * half}).transpose(1, 2)
                                    : at::randn({batch, heads, time, 2 * half});
      const at::Tensor x = bf16(values), x64 = f64(x);
      const at::Tensor factor = bf16(at::randn(x.sizes())).detach();
      const at::Tensor angles = at::rand({time, half}) * 6;
      const RopeTables tables{angles.cos(), angles.sin()};
      const at::Tensor first = x64.narrow(-1, 0, half), second = x64.narrow(-1, half, half);
      const at::Tensor wanted = at::cat(
          {first * tables.cos - second * tables.sin, second * tables.cos + first * tables.sin}, -1);
      (wanted * factor.to(at::kDouble)).sum().backward();
      const at::Tensor output = rotate(x, tables);
      EXPECT_EQ(output.strides(), x.strides());
      output.backward(factor);
      expect_rounded(output, wanted);
      expect_rounded(x.grad(), x64.grad());
    }
  }
}

TEST_F(FusedElementwiseTest, RopeUsesLibTorchForOtherDtypes) {
  const at::Tensor x = at::randn({1, 2, 4, 8});
  const RopeTables tables{at::rand({4, 4}), at::rand({4, 4})};
  EXPECT_EQ(rotate(x, tables).scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace stoker::model
