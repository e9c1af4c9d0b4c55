#include "daemon/cuda/kernels/cross_entropy_kernel.h"

#include <cmath>
#include <limits>
#include <tuple>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "daemon/cuda/kernels/host_kernels.h"

namespace stoker::cuda {
namespace {

constexpr int64_t kIgnored = -100;
constexpr float kPadding = 123;

struct Rows {
  at::Tensor memory, logits, labels, losses;

  // Rows of `classes` logits, which start at multiples of 16 bytes, with padding between them.
  Rows(int64_t rows, int64_t classes, double spread)
      : memory(at::full({rows, (classes + 7) / 8 * 8 + 8}, kPadding, at::kBFloat16)),
        logits(memory.narrow(1, 0, classes)),
        labels(at::randint(0, classes, {rows}, at::kLong)),
        losses(at::empty({rows})) {
    logits.copy_(at::randn({rows, classes}) * spread);
  }

  void run(const at::Tensor& scale) const {
    host_kernels().cross_entropy(
        {.logits = reinterpret_cast<model::Bf16*>(logits.data_ptr()),
         .labels = labels.const_data_ptr<int64_t>(),
         .losses = losses.mutable_data_ptr<float>(),
         .gradient_scale = scale.defined() ? scale.const_data_ptr<float>() : nullptr,
         .rows = logits.size(0),
         .classes = logits.size(1),
         .row_stride = memory.stride(0),
         .ignored_label = kIgnored});
  }

  // LibTorch's losses in F64, and the gradient of their sum.
  std::tuple<at::Tensor, at::Tensor> expected() const {
    const at::Tensor values = logits.to(at::kDouble).requires_grad_();
    const at::Tensor all =
        at::cross_entropy_loss(values, labels, {}, at::Reduction::None, kIgnored);
    all.sum().backward();
    return {all.detach(), values.grad()};
  }
};

class CrossEntropyKernelTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(11); }
};

// The gradient is at most half a unit of BF16 from the exact one, and a little for F32.
void expect_gradient(const Rows& rows, const at::Tensor& expected) {
  const at::Tensor error = (rows.logits.to(at::kDouble) - expected).abs();
  const at::Tensor bound = expected.abs() / 256 * 1.01 + 1e-7;
  EXPECT_TRUE(error.le(bound).all().item<bool>()) << (error - bound).max().item<double>();
  const at::Tensor padding = rows.memory.narrow(1, rows.logits.size(1), 8);
  EXPECT_TRUE(padding.eq(kPadding).all().item<bool>());
}

TEST_F(CrossEntropyKernelTest, MatchesLibTorchForAnyNumberOfClasses) {
  for (const int64_t classes : {1, 2, 7, 8, 9, 33, 255, 4095, 4096, 4103, 50257}) {
    for (const double spread : {0.1, 3.0, 30.0}) {
      const Rows rows(classes > 1000 ? 3 : 17, classes, spread);
      rows.labels[0] = kIgnored;
      const auto [losses, gradient] = rows.expected();
      const float scale = 1.0f / 17;
      rows.run(at::full({}, scale));
      EXPECT_TRUE(rows.losses.to(at::kDouble).allclose(losses, 2e-6, 4e-6)) << classes;
      expect_gradient(rows, gradient * static_cast<double>(scale));
    }
  }
}

TEST_F(CrossEntropyKernelTest, KeepsLogitsWithoutGradient) {
  const Rows rows(5, 100, 2);
  const at::Tensor before = rows.memory.clone();
  const auto [losses, gradient] = rows.expected();
  rows.run({});
  EXPECT_TRUE(rows.losses.to(at::kDouble).allclose(losses, 2e-6, 4e-6));
  EXPECT_TRUE(at::equal(rows.memory, before));
}

TEST_F(CrossEntropyKernelTest, SetsLossAndGradientOfIgnoredRowsToZero) {
  const Rows rows(4, 21, 2);
  rows.labels.fill_(kIgnored);
  rows.logits.fill_(std::numeric_limits<double>::quiet_NaN());
  rows.run(at::full({}, 1.0f));
  EXPECT_EQ(rows.losses.count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(rows.logits.count_nonzero().item<int64_t>(), 0);
}

TEST_F(CrossEntropyKernelTest, ReturnsNanForLabelThatIsNoClass) {
  for (const int64_t label : {int64_t{-1}, int64_t{21}, std::numeric_limits<int64_t>::max()}) {
    const Rows rows(2, 21, 2);
    rows.labels[1] = label;
    rows.run(at::full({}, 1.0f));
    EXPECT_TRUE(std::isfinite(rows.losses[0].item<float>()));
    EXPECT_TRUE(std::isnan(rows.losses[1].item<float>())) << label;
  }
}

TEST_F(CrossEntropyKernelTest, ReturnsNonfiniteLossForNonfiniteLogits) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), infinity}) {
    for (const int64_t at : {0, 7, 8, 20}) {  // in a vector, and after the last one
      const Rows rows(1, 21, 2);
      rows.labels[0] = 3;
      rows.logits[0][at] = value;
      rows.run(at::full({}, 1.0f));
      EXPECT_FALSE(std::isfinite(rows.losses[0].item<float>())) << value << " at " << at;
    }
  }
}

TEST_F(CrossEntropyKernelTest, GivesClassesOfMinusInfinityNoProbability) {
  const Rows rows(1, 40, 2);
  rows.labels[0] = 3;
  for (const int64_t at : {0, 8, 9, 10, 11, 12, 13, 14, 15, 39})
    rows.logits[0][at] = -std::numeric_limits<double>::infinity();
  const auto [losses, gradient] = rows.expected();
  rows.run(at::full({}, 1.0f));
  EXPECT_TRUE(rows.losses.to(at::kDouble).allclose(losses, 2e-6, 4e-6));
  expect_gradient(rows, gradient);
}

}  // namespace
}  // namespace stoker::cuda
