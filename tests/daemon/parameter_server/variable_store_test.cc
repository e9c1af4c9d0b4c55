#include "daemon/parameter_server/variable_store.h"

#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

namespace stoker::parameter_server {
namespace {

class VariableStoreTest : public ::testing::Test {
 protected:
  static VariableStore make_store(uint64_t gradients_per_step) {
    config::TrainConfig train;
    train.max_grad_norm.reset();
    auto optimizer =
        train::Optimizer::create(config::OptimizerConfig(), train,
                                 {{"weight", at::full({3}, 1.0).set_requires_grad(true)},
                                  {"bias", at::full({2}, 2.0).set_requires_grad(true)}});
    EXPECT_TRUE(optimizer.ok()) << optimizer.status().to_string();
    return VariableStore(
        *std::move(optimizer), gradients_per_step, [](uint64_t) { return 0.1; },
        [](uint64_t step) { return step % 2 == 0; });
  }
  // Of the gradients of a ticket.
  static at::Tensor bytes_of(double value) {
    const std::vector<at::Tensor> gradients{at::full({3}, value), at::full({2}, -value)};
    const at::Tensor bytes = at::empty({packed_bytes(gradients)}, at::kByte);
    pack(gradients, bytes);
    return bytes;
  }
  static at::Tensor parameters_of(const VariableStore& store) {
    const at::Tensor bytes = at::empty({packed_bytes(store.parameters())}, at::kByte);
    pack(store.parameters(), bytes);
    return bytes;
  }
};

TEST_F(VariableStoreTest, AddsGradientsInOrderOfTicketsWhateverArrivesFirst) {
  VariableStore forward = make_store(4), backward = make_store(4);
  const std::vector<double> values{1e8, 1, -1e8, 0.25};
  for (uint64_t ticket = 0; ticket < 4; ++ticket) {
    forward.stage(ticket, bytes_of(values[ticket]));
    backward.stage(3 - ticket, bytes_of(values[3 - ticket]));
  }
  ASSERT_TRUE(forward.commit(1).ok());
  ASSERT_TRUE(backward.commit(1).ok());
  EXPECT_EQ(forward.step(), 1u);
  EXPECT_TRUE(at::equal(parameters_of(forward), parameters_of(backward)));
  EXPECT_FALSE(at::equal(parameters_of(forward), parameters_of(make_store(4))));
}

TEST_F(VariableStoreTest, TakesFirstGradientOfTicketInCurrentStep) {
  VariableStore store = make_store(1), expected = make_store(1);
  store.stage(0, bytes_of(1));
  store.stage(0, bytes_of(-5));
  store.stage(1, bytes_of(-5));  // of a later step
  ASSERT_TRUE(store.commit(1).ok());
  expected.stage(0, bytes_of(1));
  ASSERT_TRUE(expected.commit(1).ok());
  EXPECT_TRUE(at::equal(parameters_of(store), parameters_of(expected)));
}

TEST_F(VariableStoreTest, CommitsStepOnce) {
  VariableStore store = make_store(1);
  store.stage(0, bytes_of(1));
  ASSERT_TRUE(store.commit(1).ok());
  const at::Tensor after = parameters_of(store);
  ASSERT_TRUE(store.commit(1).ok());
  ASSERT_TRUE(store.commit(0).ok());
  EXPECT_TRUE(at::equal(parameters_of(store), after));
}

TEST_F(VariableStoreTest, RejectsIncompleteStep) {
  VariableStore store = make_store(2);
  store.stage(0, bytes_of(1));
  EXPECT_FALSE(store.can_commit(1));
  EXPECT_TRUE(store.can_commit(0));
  EXPECT_EQ(store.commit(1).code(), StatusCode::kInternal);
  EXPECT_EQ(store.step(), 0u);
}

TEST_F(VariableStoreTest, AppliesEachTicketOnce) {
  VariableStore store = make_store(1);
  store.initialize(5);
  ASSERT_TRUE(store.apply(6, bytes_of(1)).ok());
  ASSERT_TRUE(store.apply(6, bytes_of(1)).ok());
  ASSERT_TRUE(store.apply(4, bytes_of(1)).ok());  // before the checkpoint
  EXPECT_EQ(store.step(), 6u);
  ASSERT_TRUE(store.apply(5, bytes_of(1)).ok());
  ASSERT_TRUE(store.apply(6, bytes_of(1)).ok());
  EXPECT_EQ(store.step(), 7u);
}

TEST_F(VariableStoreTest, KeepsNormsOfRecordedSteps) {
  VariableStore store = make_store(1);
  for (uint64_t ticket = 0; ticket < 4; ++ticket)
    ASSERT_TRUE(store.apply(ticket, bytes_of(2)).ok());
  EXPECT_FALSE(store.norm(3));
  EXPECT_TRUE(store.norm(2));
  EXPECT_TRUE(store.norm(2));  // again, for a chief that returns
  store.forget_norms(2);
  EXPECT_FALSE(store.norm(2));
  EXPECT_FLOAT_EQ(static_cast<float>(store.norm(4).value_or(0)), std::sqrt(20.0f));
}

TEST_F(VariableStoreTest, ReportsGradientThatIsNotFinite) {
  VariableStore store = make_store(1);
  const Status applied = store.apply(0, bytes_of(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(applied.code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stoker::parameter_server
