// The trainer while checkpoints cannot be written, and states that must not be saved. The faults
// are listed in docs/fault-tolerance.md.
#include <cerrno>
#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/train/trainer_session.h"
#include "tests/support/faulty_files.h"

namespace stoker::train {
namespace {

using namespace std::chrono_literals;
using testing::_;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testing::Not;

class TrainerSaveFaultTest : public TrainerTest {};

class TrainerDiskErrorTest : public TrainerSaveFaultTest {
 protected:
  // Trains to step 12 on a disk that fails every operation from the save of step 4 until step
  // `heal_at`.
  Result<TrainerOutcome> train_on(int error, uint64_t heal_at, config::OnWriteError on_write_error,
                                  uint64_t every_steps = 2) {
    auto config = slow_config(12);
    config.checkpoint.save_every_steps = every_steps;
    config.checkpoint.on_write_error = on_write_error;
    run_.emplace(config, root_, kNoPoison, ModelContext{.files = files_, .delays = {1ms, 1ms}});
    run_->on_row = [this, error, heal_at](const metrics::TrainMetrics& row) {
      wait_until_saved(*run_);
      if (row.step == 4)
        files_.fail_at(files_.operations().size() + 1, {.error = error, .from_here_on = true});
      if (row.step == heal_at) files_.heal();
      states_.push_back(run_->board_.read()->state);
      degraded_.push_back(row.degraded);
    };
    return run_->train();
  }
  void expect_run_continues(int error) {
    const auto outcome = train_on(error, 9, config::OnWriteError::kRetry);
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    EXPECT_EQ(*outcome, TrainerOutcome::kFinished);
    EXPECT_THAT(run_->saved(), ElementsAre(2, 10, 12));
    EXPECT_EQ(run_->writer_->stats().failures, 9U) << "steps 4, 6 and 8, each tried three times";
    EXPECT_THAT(states_, Contains(control::TrainerState::kDegraded));
    // Rows 5 and 11 directly follow a save, whose result may or may not be known yet.
    EXPECT_THAT(degraded_, ElementsAre(0, 0, 0, 0, _, 1, 1, 1, 1, 1, _, 0)) << "in the rows";
    EXPECT_FALSE(run_->writer_->is_degraded());
  }

  test::FaultyFiles files_{root_};
  std::optional<Session> run_;
  std::vector<control::TrainerState> states_;
  std::vector<uint64_t> degraded_;  // of each record
};

TEST_F(TrainerDiskErrorTest, ContinuesDegradedOnIoError) { expect_run_continues(EIO); }
TEST_F(TrainerDiskErrorTest, ContinuesDegradedOnFullDisk) { expect_run_continues(ENOSPC); }
TEST_F(TrainerDiskErrorTest, ContinuesDegradedOnExhaustedQuota) { expect_run_continues(EDQUOT); }
TEST_F(TrainerDiskErrorTest, ContinuesDegradedOnFileSizeLimit) { expect_run_continues(EFBIG); }
TEST_F(TrainerDiskErrorTest, ContinuesDegradedWhenDiskTurnsReadOnly) {
  expect_run_continues(EROFS);
}

TEST_F(TrainerDiskErrorTest, FailsRunOnWriteErrorWhenConfigured) {
  for (const int error : {EIO, ENOSPC, EDQUOT, EFBIG, EROFS}) {
    root_ = fresh();
    files_.heal();
    const auto outcome = train_on(error, 1000, config::OnWriteError::kFail, 4);
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.status().code(), StatusCode::kIoError);  // exit code 74
    EXPECT_THAT(outcome.status().message(), HasSubstr("checkpoint.on_write_error is fail"));
    EXPECT_LE(run_->state_->step, 6U) << "only when the next one was due";
    EXPECT_TRUE(run_->saved().empty());
    run_.reset();
  }
}

TEST_F(TrainerDiskErrorTest, DefersNewSegmentUntilCheckpointIsSaved) {
  auto config = slow_config(40);
  config.checkpoint.save_every_steps = 2;
  Session run(config, root_, kNoPoison, ModelContext{.files = files_, .delays = {1ms, 1ms}});
  run.on_row = [&](const metrics::TrainMetrics& row) {
    wait_until_saved(run);
    if (row.step == 3) {
      files_.fail_at(files_.operations().size() + 1, {.error = ENOSPC, .from_here_on = true});
      run.ask(control::SetSetting{"feed.num_workers", "3"});
    }
    if (row.step == 6) files_.heal();
  };
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, TrainerOutcome::kNewSettings);
  EXPECT_GE(run.state_->step, 6U);
  EXPECT_LE(run.state_->step, 12U);
  EXPECT_THAT(run.replies_, ElementsAre(HasSubstr(R"("key":"feed.num_workers","value":3)")));
  EXPECT_EQ(run.saved().front(), 2U);
  EXPECT_EQ(run.saved().back(), run.state_->step);
}

TEST_F(TrainerDiskErrorTest, FailsRunWhenRingEndsBeforeCheckpointIsSaved) {
  Session run(slow_config(6), root_, kNoPoison,
              ModelContext{.files = files_, .delays = {1ms, 1ms}});
  run.on_row = [&](const metrics::TrainMetrics& row) {
    wait_until_saved(run);
    if (row.step != 3) return;
    files_.fail_at(files_.operations().size() + 1, {.error = ENOSPC, .from_here_on = true});
    run.ask(control::SetSetting{"train.max_steps", "9"});
  };
  const auto outcome = run.train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.status().message(), HasSubstr("the last state could not be saved"));
  EXPECT_EQ(run.state_->step, 6U);
}

// With rare checkpoints the next regular save can be hours away.
TEST_F(TrainerDiskErrorTest, RetriesFailedSaveBeforeNextIsDue) {
  ManualClock clock;
  auto config = slow_config(20);
  config.checkpoint.save_every_steps = 4;
  config.train.max_steps = 11;
  Session run(config, root_, kNoPoison, {.files = files_, .clock = clock});
  run.on_row = [&](const metrics::TrainMetrics& row) {
    wait_until_saved(run);
    if (row.step == 4) files_.fail_at(files_.operations().size() + 1, {ENOSPC, {}, true});
    if (row.step == 5) files_.heal();
    clock.advance(row.step == 6 ? 31s : 1s);
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.saved(), ElementsAre(6, 8, 11));
}

TEST_F(TrainerDiskErrorTest, FailsRunWhenFinalStateCannotBeSaved) {
  const auto outcome = train_on(ENOSPC, 1000, config::OnWriteError::kRetry);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.status().code(), StatusCode::kIoError);
  EXPECT_THAT(outcome.status().message(), HasSubstr("the last state could not be saved"));
}

TEST_F(TrainerSaveFaultTest, DoesNotRecreateMovedDirectory) {
  auto config = slow_config(12);
  config.checkpoint.save_every_steps = 2;
  Session run(config, root_);
  const std::string here = root_ + "/checkpoints";
  const std::string there = root_ + "/moved";
  std::string error;
  run.on_row = [&](const metrics::TrainMetrics& row) {
    wait_until_saved(run);
    if (row.step == 4) std::filesystem::rename(here, there);
    if (row.step != 7) return;
    EXPECT_TRUE(run.writer_->is_degraded());
    error = run.writer_->stats().last_error;
    EXPECT_FALSE(std::filesystem::exists(here));
    std::filesystem::rename(there, here);
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(error, HasSubstr("moved or removed; restore it"));
  EXPECT_THAT(run.saved(), ElementsAre(2, 8, 10, 12));
}

TEST_F(TrainerSaveFaultTest, NeverSavesNonfiniteState) {
  auto config = slow_config(40);
  make_divergent(config, 1e20);
  config.checkpoint.save_every_steps = 1;
  for (const auto policy : {config::OnNonfinite::kFail, config::OnNonfinite::kRollback}) {
    config.train.on_nonfinite = policy;
    Session run(config, fresh());
    wait_for_saves(run);
    const auto outcome = run.train();
    EXPECT_TRUE(!outcome.ok() || *outcome == TrainerOutcome::kRolledBack)
        << static_cast<int>(policy);
    wait_until_saved(run);  // the failing step may come before the commit of the step before it
    // The nonfinite parameters result from the update of a step with finite loss and gradient.
    EXPECT_THAT(run.saved(), AllOf(Not(IsEmpty()), Each(Le(3U)))) << static_cast<int>(policy);
  }
}

TEST_F(TrainerSaveFaultTest, CountsConsecutiveSkippedStepsAcrossResume) {
  auto config = slow_config(50);
  config.train.on_nonfinite = config::OnNonfinite::kSkipStep;
  config.train.max_nonfinite = 7;
  const auto poisoned = [](uint64_t) { return true; };
  {
    Session run(config, root_, poisoned);
    run.on_row = [&](const metrics::TrainMetrics& row) {
      if (row.step == 4) run.ask(control::Stop{});
    };
    ASSERT_TRUE(run.train().ok());
    EXPECT_THAT(run.store_.open_newest({})->manifest().live_settings,
                HasSubstr("\"consecutive_nonfinite\":4"));
  }
  Session rest(config, root_, poisoned);
  const auto outcome = rest.train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.status().message(), HasSubstr("at step 7 (7 consecutive steps)"));
}

// Not an error: a loss can be this large and decrease again. It is left to users or alerts.
TEST_F(TrainerSaveFaultTest, ContinuesOnLargeFiniteLoss) {
  auto config = slow_config(4);
  make_divergent(config, 3);
  Session run(config, root_);
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, TrainerOutcome::kFinished);
  EXPECT_GT(run.rows_.back().loss, 100 * run.rows_.front().loss) << "it did not explode";
  EXPECT_THAT(run.saved(), ElementsAre(4));
}

}  // namespace
}  // namespace stoker::train
