// The ranks of a group on simulated devices: steps are captured without the sums over the ranks, on all
// ranks from the same step on, or on none. The sums run between graphs, or with reduction: allreduce
// during the replay of the last backward pass.
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/train/group_step.h"
#include "tests/daemon/train/fake_device_engine.h"
#include "tests/daemon/train/trainer_group_fixture.h"
#include "tests/support/fake_device/device_allocator.h"
#include "tests/support/logged_text.h"

namespace stoker::train {
namespace {

using fake_device::FakeDeviceLog;
using fake_device::FakeDeviceOptions;
using test::count_of;
using test::log_of;
using testing::IsEmpty;

// With two micro-batches on each of two ranks, a step has three graphs: one for each micro-batch, and the
// update.
constexpr uint64_t kGraphs = 3;
constexpr uint64_t kFirstCaptured = GraphSchedule::kWarmUpSteps + 1;  // step

config::Config plain_config(uint64_t steps) {
  auto config = shared_config(steps);
  config.metrics.tensorboard = false;  // whose histograms make the first step an instrumented one
  return config;
}

class TrainerGroupGraphsTest : public TrainerGroupTest {
 protected:
  // Of each rank, for the next open_on_devices().
  struct Device {
    FakeDeviceOptions options;
    bool captures = true;
    std::vector<uint64_t> captures_by_step;  // before the first micro-batch of each step
  };

  static void SetUpTestSuite() { fake_device::install_device_allocator(); }

  // The ranks with a sharded optimizer write one checkpoint.
  std::function<std::string()> folders_of(const config::Config& config) {
    if (config.distributed.shard == config::Shard::kNone) return [this] { return fresh(); };
    return [folder = fresh()] { return folder; };
  }
  void open_on_devices(const config::Config& config, int world_size, uint64_t seed = 1) {
    if (devices_.empty()) devices_.resize(static_cast<size_t>(world_size));
    ranks_.clear();
    const auto folder = folders_of(config);
    group_ = std::make_unique<ThreadGroup>(world_size);
    for (int rank = 0; rank < world_size; ++rank) {
      Device& device = devices_[static_cast<size_t>(rank)];
      device.options.seed = seed * 100 + static_cast<uint64_t>(rank);
      device.options.is_all_pinned = true;
      device.options.min_pause_probability = 0.2;  // sums start within replays
      const LaterRing ring = make_later_ring();
      ModelContext context;
      context.maybe_group = &group_->rank(rank);
      context.make_engine =
          [this, rank, make = on_fake_device(ring, device.options, device.captures)](auto calls) {
            if (rank == 0 && on_chiefs_update_)
              calls.exchanges.back().work = [update = calls.exchanges.back().work,
                                             after = on_chiefs_update_] {
                update();
                after();
              };
            return make(std::move(calls));
          };
      ranks_.push_back(std::make_unique<Session>(config, folder(), kNoPoison, std::move(context)));
      *ring = ranks_.back()->ring_.get();
      const GroupStep step(group_->rank(rank), config.train.gradient_accumulation_steps);
      const uint64_t per_step = step.share().tickets_per_step, begin = step.share().begin();
      ranks_.back()->on_batch = [&device, per_step, begin](uint64_t ticket) {
        if (ticket % per_step == begin)
          device.captures_by_step.push_back(device.options.log->captures);
      };
    }
  }
  // After the batches of `step` that a rank has got; for the sessions of open_on_devices().
  void at_step(size_t of_rank, uint64_t step, const std::function<void()>& action) {
    auto& on_batch = rank(of_rank).on_batch;
    on_batch = [&steps = devices_[of_rank].captures_by_step, step, action,
                before = std::move(on_batch)](uint64_t ticket) {
      const size_t known = steps.size();
      before(ticket);
      if (steps.size() > known && steps.size() == step) action();
    };
  }
  void expect_no_violations() {
    for (const Device& device : devices_) EXPECT_THAT(device.options.log->violations, IsEmpty());
  }
  // Of a rank: the first step with a capture; 0: none.
  uint64_t first_captured_step(size_t rank) const {
    const auto& captures = devices_[rank].captures_by_step;
    for (size_t step = 1; step < captures.size(); ++step)
      if (captures[step] > 0) return step;
    return 0;
  }
  // So that all but the last are complete before the end of the backward pass.
  void expect_several_buckets(int rank, uint64_t steps) {
    const size_t sums = group_->started_sizes(rank).size() + group_->scattered_sizes(rank).size();
    EXPECT_GT(sums, 2 * steps);
  }
  const FakeDeviceLog& log(size_t rank) const { return *devices_[rank].options.log; }

  std::vector<Device> devices_;
  std::function<void()> on_chiefs_update_;  // on its device, for the next open_on_devices()
};

struct GroupVariant {
  const char* name;
  std::function<config::Config()> config;
};
void PrintTo(const GroupVariant& variant, std::ostream* out) { *out << variant.name; }

config::Config with_allreduce(config::Config config) {
  config.distributed.reduction = config::Reduction::kAllReduce;
  config.distributed.bucket_mib = 1e-4;  // several buckets, see expect_several_buckets()
  return config;
}

const GroupVariant kGroupVariants[] = {
    {"Ordered", [] { return plain_config(12); }},
    {"AllReduce", [] { return with_allreduce(plain_config(12)); }},
    {"Sharded", [] { return sharded_config(12); }},
    {"ShardedAllReduce", [] { return with_allreduce(sharded_config(12)); }},
    {"Fp16SkippedSteps",
     [] {
       auto config = plain_config(12);
       config.train.precision = config::Precision::kFp16;
       config.train.on_nonfinite = config::OnNonfinite::kSkipStep;
       return config;
     }},
};

class TrainerGroupGraphsOfVariantTest
    : public TrainerGroupGraphsTest,
      public testing::WithParamInterface<std::tuple<GroupVariant, int>> {};

TEST_P(TrainerGroupGraphsOfVariantTest, TrainsAsOnCpu) {
  const auto& [variant, world_size] = GetParam();
  const config::Config config = variant.config();
  open(config, world_size, folders_of(config));
  train_to_end();
  const auto group_on_cpu = std::move(group_);
  const auto on_cpu = std::exchange(ranks_, {});
  uint64_t early_sums = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    ranks_.clear();
    devices_.clear();
    open_on_devices(config, world_size, seed);
    train_to_end();
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      expect_same_records(*ranks_[rank], *on_cpu[rank]);
      EXPECT_EQ(checksum_of_parameters(ranks_[rank]->state_->model()),
                checksum_of_parameters(on_cpu[rank]->state_->model()));
      EXPECT_GE(log(rank).replays, 4u);
      EXPECT_EQ(log(rank).captures, log(0).captures);
      early_sums += log(rank).early_sums;
      if (config.distributed.reduction == config::Reduction::kAllReduce)
        expect_several_buckets(static_cast<int>(rank), 12);
    }
    EXPECT_EQ(chief().model_sha256(), on_cpu[0]->model_sha256());
    expect_no_violations();
  }
  if (config.distributed.reduction == config::Reduction::kAllReduce) {
    EXPECT_GT(early_sums, 0u) << "no sum has started during a replay";
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, TrainerGroupGraphsOfVariantTest,
                         testing::Combine(testing::ValuesIn(kGroupVariants), testing::Values(2, 4)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + std::string("On") +
                                  std::to_string(std::get<1>(test.param)) + "Ranks";
                         });

TEST_F(TrainerGroupGraphsTest, CapturesPartsOfStepBetweenSums) {
  for (const auto& config : {plain_config(10), with_allreduce(plain_config(10))}) {
    devices_.clear();
    open_on_devices(config, 2);
    const std::string logged = log_of([this] { train_to_end(); });
    for (const size_t rank : {0, 1}) {
      EXPECT_EQ(first_captured_step(rank), kFirstCaptured);
      EXPECT_EQ(log(rank).captures, kGraphs);
      EXPECT_EQ(log(rank).replays, kGraphs * (10 - GraphSchedule::kWarmUpSteps));
    }
    EXPECT_EQ(count_of(logged, "cuda graph capture disabled"), 0u) << logged;
  }
}

// Of rank 1, four steps run eagerly: their hooks start the sums.
TEST_F(TrainerGroupGraphsTest, StartsSameSumsWithReplaysAsHooksDo) {
  for (const auto& config :
       {with_allreduce(plain_config(18)), with_allreduce(sharded_config(18))}) {
    open(config, 2, folders_of(config));
    train_to_end();
    const auto on_cpu = std::move(group_);
    devices_.clear();
    open_on_devices(config, 2);
    at_step(1, 12, [this] { rank(1).ask(control::Profile{.steps = 4, .wait = false}); });
    train_to_end();
    EXPECT_GT(log(0).replays, log(1).replays);
    for (const int rank : {0, 1}) {
      EXPECT_EQ(group_->started_sizes(rank), on_cpu->started_sizes(rank));
      EXPECT_EQ(group_->scattered_sizes(rank), on_cpu->scattered_sizes(rank));
      expect_several_buckets(rank, 18);
    }
    ranks_.clear();
  }
}

// The steps of a profile run eagerly and do not count, so this rank is ready later.
TEST_F(TrainerGroupGraphsTest, CapturesFromSameStepOnAllRanks) {
  open_on_devices(plain_config(10), 2);
  rank(1).ask(control::Profile{.steps = 2, .wait = false});
  train_to_end();
  EXPECT_EQ(first_captured_step(0), kFirstCaptured + 2);
  EXPECT_EQ(devices_[0].captures_by_step, devices_[1].captures_by_step);
}

TEST_F(TrainerGroupGraphsTest, CapturesAgainFromSameStepAfterUnfreezing) {
  auto config = plain_config(16);
  config.model.freeze = {"0.*"};
  config.model.unfreeze_at_step = 6;
  open_on_devices(config, 2);
  train_to_end();
  EXPECT_EQ(devices_[0].captures_by_step, devices_[1].captures_by_step);
  EXPECT_EQ(log(0).captures, 2 * kGraphs);
  expect_no_violations();
}

class TrainerGroupFailedCaptureTest
    : public TrainerGroupGraphsTest,
      public testing::WithParamInterface<std::tuple<config::Reduction, uint64_t>> {};

// In a micro-batch the others learn it in the same step, in the update in the next.
TEST_P(TrainerGroupFailedCaptureTest, EndsCapturesOnAllRanks) {
  const auto [reduction, failing] = GetParam();
  auto config = plain_config(12);
  if (reduction == config::Reduction::kAllReduce) config = with_allreduce(config);
  open(config, 2);
  train_to_end();
  const std::string expected = chief().model_sha256();
  devices_.resize(2);
  devices_[1].options.failing_capture = failing;
  open_on_devices(config, 2);
  const std::string logged = log_of([this] { train_to_end(); });
  EXPECT_EQ(chief().model_sha256(), expected);
  EXPECT_EQ(log(1).failed_captures, 1u);
  EXPECT_EQ(log(1).captures, failing + 1);
  EXPECT_EQ(log(0).captures, kGraphs);
  const bool is_update = failing == kGraphs - 1;
  EXPECT_EQ(log(0).replays, is_update ? 2 * kGraphs : kGraphs);
  expect_no_violations();
  EXPECT_EQ(count_of(logged, "cuda graph capture disabled"), 2u) << logged;
  EXPECT_EQ(count_of(logged, "not captured on 1 of 2 ranks"), 1u) << logged;
}

INSTANTIATE_TEST_SUITE_P(Graphs, TrainerGroupFailedCaptureTest,
                         testing::Combine(testing::Values(config::Reduction::kOrdered,
                                                          config::Reduction::kAllReduce),
                                          testing::Range<uint64_t>(0, kGraphs)),
                         [](const auto& test) {
                           const bool is_ordered =
                               std::get<0>(test.param) == config::Reduction::kOrdered;
                           return std::string(is_ordered ? "Ordered" : "AllReduce") +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST_F(TrainerGroupGraphsTest, CapturesNothingIfOneRankGaveUpBefore) {
  devices_.resize(2);
  devices_[1].captures = false;
  open_on_devices(plain_config(8), 2);
  const std::string logged = log_of([this] { train_to_end(); });
  for (const size_t rank : {0, 1}) EXPECT_EQ(log(rank).captures, 0u);
  EXPECT_EQ(count_of(logged, "cuda graph capture disabled"), 1u) << logged;
}

// A line for each micro-batch of the step, without one for what follows an exchange.
TEST_F(TrainerGroupGraphsTest, LogsEachShapeOfMicroBatchOnce) {
  auto config = sharded_config(8);  // with EMA: two parts follow exchanges
  config.metrics.tensorboard = false;
  config.model.freeze.clear();
  config.model.unfreeze_at_step.reset();
  open_on_devices(config, 2);
  const std::string logged = log_of([this] { train_to_end(); });
  EXPECT_EQ(log(0).captures, 4u);
  EXPECT_EQ(count_of(logged, "cuda graph captured"), 2u * 2u) << logged;
}

// It captures again alone, until all give up.
TEST_F(TrainerGroupGraphsTest, TrainsAsOnCpuIfOneRankDropsGraphs) {
  for (const auto& config : {plain_config(20), with_allreduce(plain_config(20))}) {
    open(config, 2);
    train_to_end();
    const std::string expected = chief().model_sha256();
    std::string logged;
    for (const uint64_t seed : {1, 2, 3}) {
      ranks_.clear();
      devices_.clear();
      devices_.resize(2);
      devices_[1].options.is_memory_short = true;
      open_on_devices(config, 2, seed);
      for (const uint64_t step : {6, 13})
        at_step(1, step, [this] { rank(1).ask(control::Profile{.steps = 4, .wait = false}); });
      logged += log_of([this] { train_to_end(); });
      EXPECT_EQ(chief().model_sha256(), expected) << seed;
      EXPECT_EQ(first_captured_step(0), kFirstCaptured);
      expect_no_violations();
    }
    EXPECT_GT(count_of(logged, "cuda graphs dropped"), 0u) << logged;
  }
}

TEST_F(TrainerGroupGraphsTest, ReplaysGraphsAfterPause) {
  const auto config = plain_config(12);
  open(config, 2);
  train_to_end();
  const std::string expected = chief().model_sha256();
  open_on_devices(config, 2);
  at_step(0, 6, [this] { chief().ask(control::Pause{}); });
  std::jthread client([this] {
    for (const auto& session : ranks_) wait_until_paused(*session);
    chief().ask(control::Resume{});
  });
  train_to_end();
  client.join();
  EXPECT_EQ(chief().model_sha256(), expected);
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(log(rank).captures, kGraphs);
    EXPECT_EQ(log(rank).replays, kGraphs * (12 - GraphSchedule::kWarmUpSteps));
  }
  expect_no_violations();
}

TEST_F(TrainerGroupGraphsTest, UpdatesNothingAfterLostRank) {
  // The collective of step 6, and with allreduce the first of its two, which has the gradients.
  for (const auto& [config, collective] :
       {std::pair(plain_config(12), 6), std::pair(with_allreduce(plain_config(12)), 11)}) {
    devices_.clear();
    open_on_devices(config, 2);
    group_->lose_at(static_cast<uint64_t>(collective));
    for (const auto& outcome : train()) EXPECT_EQ(outcome.status().code(), StatusCode::kPeerLost);
    EXPECT_THAT(chief().saved(), IsEmpty());
    // Of the last step, the update was not replayed.
    EXPECT_EQ(log(0).replays, kGraphs * (6 - GraphSchedule::kWarmUpSteps) - 1);
    expect_no_violations();
  }
}

// The sums of a step can fail while the host is ahead of the device, and its state is then undefined.
TEST_F(TrainerGroupGraphsTest, SavesNothingIfRankIsLostOnDevice) {
  auto config = plain_config(4);
  config.checkpoint.save_every_steps = 2;
  devices_.resize(2);
  for (Device& device : devices_) {
    device.captures = false;
    device.options.is_lazy = true;
  }
  int updates = 0;
  on_chiefs_update_ = [&updates, this] {
    if (++updates == 2) group_->lose_devices();
  };
  open_on_devices(config, 2);
  EXPECT_EQ(train()[0].status().code(), StatusCode::kPeerLost);
  EXPECT_EQ(updates, 4);
  EXPECT_THAT(chief().saved(), IsEmpty());
  expect_no_violations();
}

}  // namespace
}  // namespace stoker::train
