#include "shared/model/weight_copies.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "shared/model/autocast.h"

namespace stoker::model {
namespace {

TEST(WeightCopiesTest, CopiesWeightOnceUntilItChanges) {
  const at::Tensor weight = at::randn({3, 4}).requires_grad_();
  WeightCopies copies;
  const WeightCopies::Scope scope(&copies);
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  const at::Tensor first = WeightCopies::or_weight(weight);
  EXPECT_TRUE(at::equal(first, weight.to(at::kBFloat16)));
  EXPECT_EQ(WeightCopies::or_weight(weight).data_ptr(), first.data_ptr());
  {
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  }
  const at::Tensor second = WeightCopies::or_weight(weight);
  EXPECT_EQ(second.data_ptr(), first.data_ptr());  // a captured graph reads it
  EXPECT_TRUE(at::equal(second, weight.to(at::kBFloat16)));
}

TEST(WeightCopiesTest, KeepsCopyThatAKernelHasWritten) {
  const at::Tensor weight = at::randn({3, 4}).requires_grad_();
  WeightCopies copies;
  EXPECT_EQ(copies.maybe_target(weight), nullptr);
  const WeightCopies::Scope scope(&copies);
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  (void)WeightCopies::or_weight(weight);
  copies.maybe_target(weight)[5] = Bf16{0x3f80};  // 1.0
  weight.unsafeGetTensorImpl()->bump_version();
  copies.set_written(weight);
  EXPECT_EQ(WeightCopies::or_weight(weight)[1][1].item<float>(), 1.0f);
}

TEST(WeightCopiesTest, PassesGradientToWeight) {
  const at::Tensor weight = at::randn({3, 4}).requires_grad_(), x = at::randn({2, 4});
  WeightCopies copies;
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  at::linear(x, weight).sum().backward();
  const at::Tensor expected = weight.grad().clone();
  weight.mutable_grad() = at::Tensor();
  const WeightCopies::Scope scope(&copies);
  at::linear(x, WeightCopies::or_weight(weight)).sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), expected));
}

TEST(WeightCopiesTest, LeavesWeightOutsideOfScopeAndAutocast) {
  const at::Tensor weight = at::randn({3, 4}).requires_grad_();
  WeightCopies copies;
  {
    const WeightCopies::Scope scope(&copies);
    EXPECT_TRUE(WeightCopies::or_weight(weight).is_same(weight));
    const Autocast half(at::kHalf, c10::DeviceType::CPU);
    EXPECT_TRUE(WeightCopies::or_weight(weight).is_same(weight));
  }
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  EXPECT_TRUE(WeightCopies::or_weight(weight).is_same(weight));
}

}  // namespace
}  // namespace stoker::model
