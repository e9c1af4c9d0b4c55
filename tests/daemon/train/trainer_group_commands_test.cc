// What changes how the ranks of a group continue: rollbacks, dataset versions, and the loss of the group.
// All ranks decide the same at the same step.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/train/trainer_group_fixture.h"

namespace stoker::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;

class TrainerGroupCommandsTest : public TrainerGroupTest {
 protected:
  // NaN in the first sample that rank 1 of 2 trains on in `step`, of the first epoch.
  void poison(const config::Config& config, uint64_t step) {
    ranks_.clear();  // their workers use is_poisoned_
    const auto tickets = static_cast<uint64_t>(config.train.gradient_accumulation_steps);
    const Session planned(config, fresh());
    const uint64_t poisoned = planned.plan_->at((step - 1) * tickets + tickets / 2, 0).sample;
    is_poisoned_ = [poisoned](int rank, uint64_t sample) {
      return rank == 1 && sample == poisoned;
    };
  }
};

TEST_F(TrainerGroupCommandsTest, RollsBackAllRanksAfterStepThatIsNotFiniteOnOne) {
  for (auto config : {shared_config(20), sharded_config(20)}) {
    config.train.on_nonfinite = config::OnNonfinite::kRollback;
    config.checkpoint.save_every_steps = 2;
    poison(config, 3);
    open_shared(config, 2, fresh());
    for (const auto& session : ranks_) wait_for_saves(*session);
    expect_all(TrainerOutcome::kRolledBack);
    EXPECT_THAT(steps_of_ranks(), ElementsAre(3, 3));
    wait_until_saved(chief());
    EXPECT_THAT(chief().saved(), ElementsAre(2));
    for (const auto& session : ranks_) EXPECT_FALSE(session->channels_.expects_exchange);
  }
}

TEST_F(TrainerGroupCommandsTest, EndsAllRanksAfterTooManyRollbacks) {
  auto config = shared_config(20);
  config.train.on_nonfinite = config::OnNonfinite::kRollback;
  poison(config, 3);
  open(config, 2);
  for (const auto& session : ranks_)
    session->state_->rollbacks = static_cast<uint64_t>(config.train.max_nonfinite);
  for (const auto& outcome : train()) {
    EXPECT_EQ(outcome.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(outcome.status().message(), HasSubstr("not finite at step 3 after"));
  }
}

// A launcher does not repeat its signal.
TEST_F(TrainerGroupCommandsTest, StopsAtStepThatWouldBeRolledBack) {
  for (const uint64_t max_steps : {uint64_t{20}, uint64_t{3}}) {
    auto config = shared_config(max_steps);
    config.train.on_nonfinite = config::OnNonfinite::kRollback;
    poison(config, 3);
    open(config, 2);
    rank(1).on_row = [this](const metrics::TrainMetrics& row) {
      if (row.step == 2) rank(1).ask(control::Stop{.is_preemption = true});
    };
    expect_all(TrainerOutcome::kPreempted);
    EXPECT_THAT(steps_of_ranks(), ElementsAre(3, 3));
    EXPECT_THAT(chief().saved(), IsEmpty());
    EXPECT_THAT(rank(1).replies_, ElementsAre(HasSubstr(R"({"step":3,)")));
  }
}

// The run continues from it.
TEST_F(TrainerGroupCommandsTest, CompletesCheckpointInFlightWhenItStopsAtStepThatIsNotFinite) {
  auto config = sharded_config(20);
  config.train.on_nonfinite = config::OnNonfinite::kRollback;
  config.checkpoint.save_every_steps = 2;
  poison(config, 3);
  open_shared(config, 2, fresh());
  rank(1).on_row = [this](const metrics::TrainMetrics& row) {
    if (row.step == 2) rank(1).ask(control::Stop{.is_preemption = true});
  };
  expect_all(TrainerOutcome::kPreempted);
  for (const auto& session : ranks_)
    EXPECT_TRUE(session->writer_->wait_idle(std::chrono::milliseconds(0)));
  EXPECT_THAT(chief().saved(), ElementsAre(2));
}

TEST_F(TrainerGroupCommandsTest, StartsDatasetVersionOfChiefAtSameStep) {
  for (const auto& config : {shared_config(20), sharded_config(20)}) {
    open_shared(config, 4, fresh());
    chief().has_new_version = [](uint64_t ticket) { return ticket >= 4 * 7; };
    expect_all(TrainerOutcome::kNewDatasetVersion);
    EXPECT_THAT(steps_of_ranks(), ElementsAre(7, 7, 7, 7));
    EXPECT_THAT(chief().saved(), ElementsAre(7));
  }
}

TEST_F(TrainerGroupCommandsTest, StartsDatasetVersionFoundDuringPause) {
  open(shared_config(20), 2);
  std::atomic<bool> is_found = false;
  chief().has_new_version = [&](uint64_t ticket) { return is_found && ticket >= 4; };
  chief().on_row = [this](const metrics::TrainMetrics& row) {
    if (row.step == 2) chief().ask(control::Pause{});
  };
  std::jthread client([&] {
    wait_until_paused(chief());
    is_found = true;
    const uint64_t exchanges = chief().channels_.group_exchanges;
    EXPECT_TRUE(
        test::eventually([&] { return chief().channels_.group_exchanges >= exchanges + 2; }));
    chief().mailbox_.post({control::Resume{}, {}});
  });
  expect_all(TrainerOutcome::kNewDatasetVersion);
  EXPECT_THAT(steps_of_ranks(), ElementsAre(3, 3));
}

// They are those of the run, not of the trainer.
TEST_F(TrainerGroupCommandsTest, LeavesRequestsWithoutEffectToNextTrainer) {
  open(shared_config(20), 2);
  chief().has_new_version = [](uint64_t ticket) { return ticket >= 4 * 3; };
  chief().on_row = [this](const metrics::TrainMetrics& row) {
    if (row.step == 3) chief().ask(control::Pause{});
  };
  rank(1).on_row = [this](const metrics::TrainMetrics& row) {
    if (row.step == 3) rank(1).ask(control::Stop{.is_preemption = true});
  };
  expect_all(TrainerOutcome::kNewDatasetVersion);
  const auto left = chief().mailbox_.take();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<control::Pause>(left[0].command));
  const auto left_to_other = rank(1).mailbox_.take();
  ASSERT_EQ(left_to_other.size(), 1u);
  EXPECT_TRUE(std::get<control::Stop>(left_to_other[0].command).is_preemption);
  EXPECT_THAT(chief().replies_, IsEmpty());
  EXPECT_THAT(rank(1).replies_, IsEmpty());
}

TEST_F(TrainerGroupCommandsTest, EndsWhenGroupIsLostAtCommit) {
  auto config = shared_config(100);
  config.checkpoint.save_every_steps = 2;
  may_commit_ = Status(StatusCode::kPeerLost, "the group's store does not respond");
  open(config, 2);
  wait_for_saves(chief());
  for (const auto& outcome : train()) EXPECT_EQ(outcome.status().code(), StatusCode::kPeerLost);
  EXPECT_THAT(chief().state_->step, Le(4u));
  for (const auto& session : ranks_) EXPECT_FALSE(session->channels_.expects_exchange);
  EXPECT_EQ(chief().writer_->stats().failures, 1u) << "tried again";
}

}  // namespace
}  // namespace stoker::train
