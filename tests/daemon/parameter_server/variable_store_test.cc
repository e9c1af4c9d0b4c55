#include "daemon/parameter_server/variable_store.h"

#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "daemon/parameter_server/messages.h"

namespace stoker::parameter_server {
namespace {

class VariableStoreTest : public ::testing::Test {
 protected:
  static VariableStore make_store(uint64_t gradients_per_step, double max_count = 0) {
    config::TrainConfig train;
    train.max_grad_norm.reset();
    auto optimizer =
        train::Optimizer::create(config::OptimizerConfig(), train,
                                 {{"weight", at::full({3}, 1.0).set_requires_grad(true)},
                                  {"bias", at::full({2}, 2.0).set_requires_grad(true)}});
    EXPECT_TRUE(optimizer.ok()) << optimizer.status().to_string();
    return VariableStore(
        *std::move(optimizer), gradients_per_step, [](uint64_t) { return 0.1; },
        [](uint64_t step) { return step % 2 == 0; }, /*needs_norm=*/false, max_count);
  }
  // Of the gradients of a ticket.
  static at::Tensor bytes_of(double value, const train::Optimizer::Reached& reached = {1, 1}) {
    const std::vector<at::Tensor> gradients{at::full({3}, value), at::full({2}, -value)};
    const at::Tensor bytes = at::empty({packed_gradient_bytes(gradients)}, at::kByte);
    pack_gradients(gradients, reached, bytes);
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

// The gradients are those of sums of 3 and 1 values, divided by 16, the count of a step without padding.
TEST_F(VariableStoreTest, DividesSumOfGradientsByCountOfStep) {
  VariableStore counted = make_store(2, 16), mean = make_store(1);
  counted.stage(0, bytes_of(12.0 / 16), 3);
  counted.stage(1, bytes_of(-2.0 / 16), 1);
  mean.stage(0, bytes_of(10.0 / 4));
  ASSERT_TRUE(counted.commit(1).ok());
  ASSERT_TRUE(mean.commit(1).ok());
  EXPECT_TRUE(at::equal(parameters_of(counted), parameters_of(mean)));
  EXPECT_EQ(counted.count_scale(4), 4);
}

TEST_F(VariableStoreTest, StepWithoutValuesChangesNothing) {
  VariableStore store = make_store(2, 16);
  const at::Tensor before = parameters_of(store);
  for (uint64_t ticket = 0; ticket < 2; ++ticket) store.stage(ticket, bytes_of(0), 0);
  ASSERT_TRUE(store.commit(1).ok());
  EXPECT_EQ(store.step(), 1u);
  EXPECT_TRUE(at::equal(parameters_of(store), before)) << "weight decay alone changes them";
  VariableStore async = make_store(1, 8);
  ASSERT_TRUE(async.apply(0, bytes_of(0), -1, 0).ok());
  EXPECT_EQ(async.step(), 1u);
  EXPECT_TRUE(at::equal(parameters_of(async), before));
}

// As one process records it: null.
TEST_F(VariableStoreTest, StepWithoutValuesHasNoNorm) {
  VariableStore store = make_store(2, 16);
  for (uint64_t ticket = 0; ticket < 4; ++ticket) {
    store.stage(ticket, bytes_of(ticket < 2 ? 1 : 0), ticket < 2 ? 1 : 0);
    if (ticket % 2 == 1) {
      ASSERT_TRUE(store.commit(ticket / 2 + 1).ok());
    }
  }
  ASSERT_TRUE(store.norms(2));
  EXPECT_TRUE(std::isnan(train::Optimizer::norm_of(*store.norms(2)).item<double>()));
  VariableStore async = make_store(1, 8);
  for (const uint64_t ticket : {0, 1}) ASSERT_TRUE(async.apply(ticket, bytes_of(0), -1, 0).ok());
  ASSERT_TRUE(async.norms(2));
  EXPECT_TRUE(std::isnan(train::Optimizer::norm_of(*async.norms(2)).item<double>()));
}

// As in one process, where a prediction counts although the class has no weight in the loss.
TEST(SumsTest, StepWithoutValuesHasMetricsOnly) {
  Sums interval;
  add_step(interval, {.loss = 2, .metrics = {1}, .metric_counts = {4}, .steps = 1, .count = 4});
  add_step(interval, {.loss = 0, .metrics = {2}, .metric_counts = {4}, .steps = 1, .count = 0});
  EXPECT_EQ(interval.steps, 1);
  EXPECT_EQ(interval.loss, 2);
  EXPECT_EQ(interval.metrics[0], 3);
  EXPECT_EQ(interval.metric_counts[0], 8);
}

// torch.optim.AdamW(lr=0.1, betas=(0.9, 0.95), weight_decay=0.1) of PyTorch 2.11 after one step with a gradient of 2 for the
// weight, 1.0, and none for the bias, 2.0: 0.89 and 2.0 (tests/parity/make_numbers.py).
TEST_F(VariableStoreTest, LeavesParameterThatNoMicroBatchHasReached) {
  VariableStore sync = make_store(2), async = make_store(1);
  sync.stage(0, bytes_of(0, {0, 0}));
  sync.stage(1, bytes_of(2, {1, 0}));
  ASSERT_TRUE(sync.commit(1).ok());
  ASSERT_TRUE(async.apply(0, bytes_of(2, {1, 0})).ok());
  for (const VariableStore* const store : {&sync, &async}) {
    EXPECT_NEAR(store->parameters()[0][0].item<double>(), 0.89, 1e-6);
    EXPECT_EQ(store->parameters()[1][0].item<double>(), 2);
  }
  // Of the next step, all are known anew.
  ASSERT_TRUE(async.apply(1, bytes_of(2, {1, 1})).ok());
  EXPECT_NE(async.parameters()[1][0].item<double>(), 2);
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
  EXPECT_FALSE(store.norms(3));
  EXPECT_TRUE(store.norms(2));
  EXPECT_TRUE(store.norms(2));  // again, for a chief that returns
  store.forget_norms(2);
  EXPECT_FALSE(store.norms(2));
  const auto norms = store.norms(4);
  ASSERT_TRUE(norms);
  EXPECT_EQ(norms->numel(), 2);
  EXPECT_FLOAT_EQ(train::Optimizer::norm_of(*norms).item<float>(), std::sqrt(20.0f));
}

// ---- the norm of all gradients -------------------------------------------------------------------

// Two servers with a variable each, and one process with both.
class ClippingTest : public ::testing::Test {
 protected:
  static std::unique_ptr<train::Optimizer> make_optimizer(const train::NamedTensors& variables) {
    config::TrainConfig train;
    train.max_grad_norm = 0.5;
    train.max_grad_value = 1.5;
    config::OptimizerConfig sgd;
    sgd.method = config::SgdConfig();
    auto optimizer = train::Optimizer::create(sgd, train, variables);
    EXPECT_TRUE(optimizer.ok()) << optimizer.status().to_string();
    return *std::move(optimizer);
  }
  static VariableStore make_store(int64_t size) {
    return VariableStore(
        make_optimizer({{"v", at::full({size}, 1.0).set_requires_grad(true)}}), 2,
        [](uint64_t) { return 0.1; }, [](uint64_t) { return true; }, /*needs_norm=*/true);
  }
  static at::Tensor bytes_of(int64_t size, double value) {
    const std::vector<at::Tensor> gradients{at::full({size}, value)};
    const at::Tensor bytes = at::empty({packed_gradient_bytes(gradients)}, at::kByte);
    pack_gradients(gradients, {1}, bytes);
    return bytes;
  }
  // After one step with gradients whose sums are `first` and `second`.
  static std::vector<at::Tensor> parameters_of_one_process(double first, double second) {
    const std::vector<at::Tensor> parameters{at::full({3}, 1.0).set_requires_grad(true),
                                             at::full({2}, 1.0).set_requires_grad(true)};
    const auto optimizer = make_optimizer({{"v", parameters[0]}, {"w", parameters[1]}});
    optimizer->gradients()[0].fill_(first);
    optimizer->gradients()[1].fill_(second);
    (void)optimizer->step(0.1);
    return parameters;
  }
};

TEST_F(ClippingTest, UpdatesPartsAsOneProcessByNormOfAll) {
  std::vector<VariableStore> stores;
  stores.push_back(make_store(3));
  stores.push_back(make_store(2));
  for (uint64_t ticket = 0; ticket < 2; ++ticket) {
    stores[0].stage(ticket, bytes_of(3, 1));
    stores[1].stage(ticket, bytes_of(2, -0.25));
  }
  std::vector<at::Tensor> clamped;
  for (VariableStore& store : stores) {
    const auto norms = store.step_norms(1);
    ASSERT_TRUE(norms.ok() && *norms) << norms.status().to_string();
    clamped.push_back((**norms)[1]);
  }
  const double norm = norm_to_clip_by(at::cat(clamped), at::cat(clamped));
  for (VariableStore& store : stores) ASSERT_TRUE(store.commit(1, norm).ok());
  const auto expected = parameters_of_one_process(2, -0.5);
  EXPECT_TRUE(at::equal(stores[0].parameters()[0], expected[0]));
  EXPECT_TRUE(at::equal(stores[1].parameters()[0], expected[1]));
}

// Clamping would hide it.
TEST_F(ClippingTest, ReportsInfiniteGradientOfOneServerOnAll) {
  std::vector<VariableStore> stores;
  stores.push_back(make_store(3));
  stores.push_back(make_store(2));
  std::vector<at::Tensor> before, clamped;
  for (uint64_t ticket = 0; ticket < 2; ++ticket) {
    stores[0].stage(ticket, bytes_of(3, std::numeric_limits<double>::infinity()));
    stores[1].stage(ticket, bytes_of(2, 1));
  }
  for (VariableStore& store : stores) {
    const auto norms = store.step_norms(1);
    ASSERT_TRUE(norms.ok() && *norms) << norms.status().to_string();
    before.push_back((**norms)[0]);
    clamped.push_back((**norms)[1]);
  }
  const double norm = norm_to_clip_by(at::cat(before), at::cat(clamped));
  for (VariableStore& store : stores) EXPECT_EQ(store.commit(1, norm).code(), StatusCode::kCorrupt);
}

TEST_F(ClippingTest, HasNormsOfStepUntilNextOne) {
  VariableStore store = make_store(3);
  const auto none = store.step_norms(0);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(*none);
  EXPECT_EQ(store.step_norms(1).status().code(), StatusCode::kInternal);
  for (uint64_t ticket = 0; ticket < 2; ++ticket) store.stage(ticket, bytes_of(3, 1));
  const auto due = store.step_norms(1);
  ASSERT_TRUE(due.ok() && *due);
  ASSERT_TRUE(store.commit(1, 5).ok());
  const auto done = store.step_norms(1);  // for a worker that is slower
  ASSERT_TRUE(done.ok() && *done);
  EXPECT_TRUE(at::equal(**done, **due));
  for (uint64_t ticket = 2; ticket < 4; ++ticket) store.stage(ticket, bytes_of(3, 1));
  ASSERT_TRUE(store.step_norms(2).ok());
  const auto earlier = store.step_norms(1);
  ASSERT_TRUE(earlier.ok());
  EXPECT_FALSE(*earlier);
}

TEST_F(ClippingTest, RejectsUpdateWithoutNorm) {
  VariableStore store = make_store(3);
  for (uint64_t ticket = 0; ticket < 2; ++ticket) store.stage(ticket, bytes_of(3, 1));
  EXPECT_EQ(store.commit(1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store.apply(0, bytes_of(3, 1)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store.step(), 0u);
  ASSERT_TRUE(store.commit(1, 5).ok());
}

TEST_F(VariableStoreTest, ReportsGradientThatIsNotFinite) {
  VariableStore store = make_store(1);
  const Status applied = store.apply(0, bytes_of(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(applied.code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stoker::parameter_server
