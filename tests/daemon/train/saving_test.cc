// When the trainer saves, and that it saves no step twice.
#include <condition_variable>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// Blocks the writer thread before a commit until open() is called.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class TrainerSaveTest : public TrainerTest {};

TEST_F(TrainerSaveTest, SavesByStepsAndAtEnd) {
  auto config = slow_config(10);
  config.checkpoint.save_every_steps = 4;
  Session run(config, root_);
  wait_for_saves(run);
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.saved(), ElementsAre(4, 8, 10));
}

// Each commit takes until the trainer waits for the writer, so that the next save is due meanwhile.
TEST_F(TrainerSaveTest, WaitsForWriterInsteadOfSkippingSaveWithRollback) {
  auto config = slow_config(6);
  config.checkpoint.save_every_steps = 2;
  config.train.on_nonfinite = config::OnNonfinite::kRollback;
  Session* maybe_run = nullptr;
  Session run(config, root_, kNoPoison, {.before_commit = [&] {
                EXPECT_TRUE(test::eventually([&] {
                  return maybe_run->board_.phase() == control::TrainerPhase::kUnwatched;
                }));
              }});
  maybe_run = &run;
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.saved(), ElementsAre(2, 4, 6));
  EXPECT_EQ(run.writer_->stats().skipped, 0u);
}

TEST_F(TrainerSaveTest, SavesStateBeforeInvalidBatch) {
  Session run(slow_config(10), root_);
  run.is_valid = [](const feed::ReceivedBatch& batch) { return batch.ticket != 6; };
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(*outcome, TrainerOutcome::kStopped);
  EXPECT_THAT(run.saved(), ElementsAre(6));
}

TEST_F(TrainerSaveTest, FailsOnBatchOfAnotherTicket) {
  Session run(slow_config(10), root_);
  run.state_->ticket = 3;
  const auto outcome = run.train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.status().code(), StatusCode::kInternal);
  EXPECT_THAT(outcome.status().message(), testing::HasSubstr("ticket 0 instead of 3"));
}

TEST_F(TrainerSaveTest, SavesByWallTime) {
  ManualClock clock;
  auto config = slow_config(10);
  config.checkpoint.save_every_seconds = 30;
  Session run(config, root_, kNoPoison, {.clock = clock});
  run.on_row = [&](const metrics::TrainMetrics&) {
    wait_until_saved(run);
    clock.advance(10s);
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.saved(), ElementsAre(3, 6, 9, 10));
}

TEST_F(TrainerSaveTest, SavesOnLossImprovementAcrossResume) {
  auto config = slow_config(60);
  config.optimizer.set_lr(0.05);
  config.checkpoint.save_on_loss_improvement = 0.2;
  Session whole(config, root_);
  wait_for_saves(whole);
  ASSERT_TRUE(whole.train().ok());
  const auto due = whole.saved();
  EXPECT_GT(due.size(), 2U);
  EXPECT_LT(due.size(), 20U);
  const LossTrend trend = whole.state_->loss_trend;

  const std::string other = fresh();
  Session first(config, other);
  first.on_row = [&](const metrics::TrainMetrics& row) {
    wait_until_saved(first);
    if (row.step == due[0] + 1) first.ask(control::Stop{});
  };
  ASSERT_TRUE(first.train().ok());
  Session rest(config, other);
  EXPECT_EQ(rest.state_->loss_trend, first.state_->loss_trend);
  wait_for_saves(rest);
  ASSERT_TRUE(rest.train().ok());
  EXPECT_THAT(rest.saved(), Contains(due[0]));
  EXPECT_EQ(rest.state_->step, 60U);
  EXPECT_EQ(rest.state_->loss_trend.sum, trend.sum);
}

TEST_F(TrainerSaveTest, SavesStepOnceForSeveralTriggers) {
  ManualClock clock;
  auto config = slow_config(8);
  config.checkpoint.save_every_steps = 2;
  config.checkpoint.save_every_seconds = 1;
  config.checkpoint.save_on_loss_improvement = 0.0001;
  Session run(config, root_, kNoPoison, {.clock = clock, .save_after_resume = true});
  run.on_row = [&](const metrics::TrainMetrics& row) {
    wait_until_saved(run);
    clock.advance(5s);
    if (row.step % 2 == 0) run.ask(control::SaveCheckpoint{});
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.saved(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(run.writer_->stats().saved, 8U);
  EXPECT_EQ(run.writer_->stats().failures, 0U) << "a step was saved again";
  EXPECT_EQ(run.replies_.size(), 4U);
}

TEST_F(TrainerSaveTest, DoesNotSaveResumedStepAgain) {
  auto config = slow_config(6);
  {
    Session run(config, root_);
    ASSERT_TRUE(run.train().ok());
  }
  Session again(config, root_);
  again.ask(control::SaveCheckpoint{});
  ASSERT_TRUE(again.train().ok());
  EXPECT_EQ(again.writer_->stats().saved, 0U);
  EXPECT_EQ(again.writer_->stats().failures, 0U);
}

TEST_F(TrainerSaveTest, SavesInitialStateOfNewRunOnly) {
  auto config = slow_config(6);
  config.checkpoint.save_at_start = true;
  std::string initial;
  {
    Session run(config, root_);
    run.on_batch = [&](uint64_t ticket) {
      wait_until_saved(run);
      if (ticket == 0) initial = run.model_sha256();
      if (ticket == 2) run.ask(control::Stop{});
    };
    ASSERT_TRUE(run.train().ok());
    EXPECT_THAT(run.saved(), ElementsAre(0, 3));
    EXPECT_NE(run.model_sha256(), initial);
  }
  Session rest(config, root_);
  ASSERT_TRUE(rest.train().ok());
  EXPECT_THAT(rest.saved(), ElementsAre(0, 3, 6));
  EXPECT_EQ(rest.writer_->stats().failures, 0U);
}

TEST_F(TrainerSaveTest, ResumesFromInitialStateWithSameResultAndSavesItOnce) {
  auto config = slow_config(6);
  Session plain(config, fresh());
  ASSERT_TRUE(plain.train().ok());
  config.checkpoint.save_at_start = true;
  {
    Session run(config, root_);
    run.ask(control::Stop{});
    ASSERT_TRUE(run.train().ok());
    wait_until_saved(run);
    EXPECT_THAT(run.saved(), ElementsAre(0));
  }
  Session again(config, root_);
  again.ask(control::SaveCheckpoint{});
  ASSERT_TRUE(again.train().ok());
  EXPECT_THAT(again.replies_, ElementsAre(HasSubstr(R"("step":0,"already_saved":true)")));
  EXPECT_EQ(again.writer_->stats().failures, 0U);
  EXPECT_THAT(again.saved(), ElementsAre(0, 6));
  EXPECT_EQ(again.model_sha256(), plain.model_sha256());
}

TEST_F(TrainerSaveTest, SkipsAndCountsSavesWhileOneIsInFlight) {
  Gate gate;
  auto config = slow_config(10);
  config.checkpoint.save_every_steps = 2;
  Session run(config, root_, kNoPoison, {.before_commit = [&] { gate.pass(); }});
  run.on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step == 7) gate.open();
    if (row.step >= 7) wait_until_saved(run);
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.saved(), ElementsAre(2, 8, 10));
  EXPECT_EQ(run.writer_->stats().skipped, 2U);
}

TEST_F(TrainerSaveTest, CompletesRequestWithInFlightSaveOfSameStep) {
  Gate gate;
  auto config = slow_config(6);
  config.checkpoint.save_every_steps = 2;
  Session run(config, root_, kNoPoison, {.before_commit = [&] { gate.pass(); }});
  run.on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step != 2) return;
    run.ask(control::Pause{});
    run.ask(control::SaveCheckpoint{});
    run.mailbox_.post({control::Pause{}, [&](const auto&) { gate.open(); }});
  };
  std::jthread resuming([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && run.writer_->stats().saved == 0) std::this_thread::yield();
    while (!stop.stop_requested() && run.board_.read()->state != control::TrainerState::kPaused)
      std::this_thread::yield();
    run.mailbox_.post({control::Resume{}, {}});
  });
  ASSERT_TRUE(run.train().ok());
  resuming.request_stop();
  EXPECT_THAT(run.replies_, Contains(HasSubstr(R"("step":2,"already_saved":true)")));
  EXPECT_EQ(run.saved().front(), 2U);
  EXPECT_EQ(run.writer_->stats().failures, 0U);
}

TEST_F(TrainerSaveTest, RepliesToRequestWhenStoppedDuringSaveOfSameStep) {
  Gate gate;
  auto config = slow_config(6);
  config.checkpoint.save_every_steps = 2;
  Session run(config, root_, kNoPoison, {.before_commit = [&] { gate.pass(); }});
  run.on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step != 2) return;
    run.ask(control::SaveCheckpoint{});
    run.mailbox_.post({control::Stop{}, [&](const auto&) { gate.open(); }});
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.replies_, ElementsAre(HasSubstr(R"("step":2,"already_saved":true)")));
  EXPECT_THAT(run.saved(), ElementsAre(2));
}

TEST_F(TrainerSaveTest, SavesFirstStepAfterResume) {
  Session run(slow_config(5), root_, kNoPoison, {.save_after_resume = true});
  wait_for_saves(run);
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.saved(), ElementsAre(1, 5));
}

}  // namespace
}  // namespace stoker::train
