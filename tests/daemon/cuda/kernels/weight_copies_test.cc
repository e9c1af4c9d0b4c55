#include "shared/model/weight_copies.h"

#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "shared/model/autocast.h"

namespace stoker::model {
namespace {

// What the optimizer does around a kernel that changes the weight and its copy, here in place.
void update(WeightCopies& copies, const at::Tensor& weight, double factor) {
  const at::NoGradGuard no_grad;
  ASSERT_NE(copies.maybe_target(weight), nullptr);
  const at::Tensor changed = weight * factor, copy = changed.to(at::kBFloat16);
  std::memcpy(copies.maybe_target(weight), copy.const_data_ptr(), copy.nbytes());
  std::memcpy(weight.mutable_data_ptr<float>(), changed.const_data_ptr(), changed.nbytes());
  weight.unsafeGetTensorImpl()->bump_version();
  copies.set_written(weight);
}

TEST(WeightCopiesTest, CopiesOnlyWeightsWhoseUpdateWritesTheCopy) {
  const at::Tensor weight = at::randn({3, 4}).requires_grad_(), other = at::randn({3}),
                   updated_first = at::randn({3, 4}).requires_grad_();
  WeightCopies copies;
  EXPECT_EQ(copies.maybe_target(updated_first), nullptr);
  const WeightCopies::Scope scope(&copies);
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  EXPECT_TRUE(WeightCopies::or_weight(weight).is_same(weight));
  EXPECT_TRUE(WeightCopies::or_weight(weight).is_same(weight));
  EXPECT_EQ(copies.maybe_target(other), nullptr);  // no matrix product reads it
  update(copies, weight, 2);
  const at::Tensor copy = WeightCopies::or_weight(weight);
  EXPECT_TRUE(at::equal(copy, weight.to(at::kBFloat16)));
  update(copies, weight, 3);
  EXPECT_EQ(WeightCopies::or_weight(weight).data_ptr(),
            copy.data_ptr());  // a captured graph reads it
  EXPECT_TRUE(at::equal(copy, weight.to(at::kBFloat16)));
  // A captured update may write no copy of it.
  (void)WeightCopies::or_weight(updated_first);
  EXPECT_EQ(copies.maybe_target(updated_first), nullptr);
}

TEST(WeightCopiesTest, ConvertsWeightBeforeAnUpdateThatIsSkipped) {
  const at::Tensor weight = at::randn({3, 4}).requires_grad_();
  WeightCopies copies;
  const WeightCopies::Scope scope(&copies);
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  (void)WeightCopies::or_weight(weight);
  (void)copies.maybe_target(weight);
  copies.set_written(weight);
  const at::Tensor copy = WeightCopies::or_weight(weight);
  EXPECT_FALSE(copy.is_same(weight));
  EXPECT_TRUE(at::equal(copy, weight.to(at::kBFloat16)));
}

// Also after an update that may have been skipped or, in a capture that failed, has not run.
TEST(WeightCopiesTest, ReadsWeightThatHasChangedInAnotherWayUntilItIsConverted) {
  const at::Tensor weight = at::randn({3, 4}).requires_grad_();
  WeightCopies copies;
  const WeightCopies::Scope scope(&copies);
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  (void)WeightCopies::or_weight(weight);
  update(copies, weight, 2);
  {
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  }
  EXPECT_TRUE(WeightCopies::or_weight(weight).is_same(weight));
  (void)copies.maybe_target(weight);
  weight.unsafeGetTensorImpl()->bump_version();
  copies.set_written(weight);
  EXPECT_TRUE(WeightCopies::or_weight(weight).is_same(weight));
  copies.convert_all();
  EXPECT_FALSE(WeightCopies::or_weight(weight).is_same(weight));
  EXPECT_TRUE(at::equal(WeightCopies::or_weight(weight), weight.to(at::kBFloat16)));
}

TEST(WeightCopiesTest, PassesGradientToWeight) {
  const at::Tensor weight = at::randn({3, 4}).requires_grad_(), x = at::randn({2, 4});
  WeightCopies copies;
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  at::linear(x, weight).sum().backward();
  const at::Tensor expected = weight.grad().clone();
  weight.mutable_grad() = at::Tensor();
  const WeightCopies::Scope scope(&copies);
  (void)WeightCopies::or_weight(weight);
  (void)copies.maybe_target(weight);
  const at::Tensor copy = WeightCopies::or_weight(weight);
  ASSERT_EQ(copy.scalar_type(), at::kBFloat16);
  at::linear(x, copy).sum().backward();
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
