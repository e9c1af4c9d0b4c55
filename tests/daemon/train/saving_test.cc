// When the trainer saves, what it does while it cannot, and what it does not do twice.
#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/train/trainer_session.h"
#include "tests/support/faulty_files.h"

namespace stoker::train {
namespace {

using namespace std::chrono_literals;
using testing::_;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Le;

const std::function<bool(uint64_t)> kNoPoison = [](uint64_t) { return false; };

// Holds the writing thread before a commit until it is opened.
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

class Saving : public TrainerTest {
 protected:
  // Each step is reported, and what was submitted before is written before the next step: what is
  // saved then depends on the rules alone.
  static config::Config slow_config(uint64_t steps) {
    auto config = small_config(steps);
    config.metrics.every_steps = 1;
    return config;
  }
  static void wait_for_each(Session& run) {
    run.on_row = [&run](const metrics::TrainRow&) {
      while (!run.writer_->wait_idle(100ms)) {
      }
    };
  }
};

TEST_F(Saving, ByStepsAndAtTheEndOffSchedule) {
  auto config = slow_config(10);
  config.checkpoint.every_steps = 4;
  Session run(config, root_);
  wait_for_each(run);
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.saved(), ElementsAre(4, 8, 10));
}

TEST_F(Saving, ByWallTime) {
  ManualClock clock;
  auto config = slow_config(10);
  config.checkpoint.every_seconds = 30;
  Session run(config, root_, kNoPoison, {.clock = clock});
  run.on_row = [&](const metrics::TrainRow&) {
    while (!run.writer_->wait_idle(100ms)) {
    }
    clock.advance(10s);
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.saved(), ElementsAre(3, 6, 9, 10));
}

TEST_F(Saving, OnAnImprovingLossAndItGoesOnAcrossAResume) {
  auto config = slow_config(60);
  config.optimizer.lr = 0.05;
  config.checkpoint.on_improvement = 0.2;
  Session whole(config, root_);
  wait_for_each(whole);
  ASSERT_TRUE(whole.train().ok());
  const auto due = whole.saved();
  EXPECT_GT(due.size(), 2U);
  EXPECT_LT(due.size(), 20U);
  const LossTrend trend = whole.state_->loss_trend;

  const std::string other = fresh();
  Session first(config, other);
  first.on_row = [&](const metrics::TrainRow& row) {
    while (!first.writer_->wait_idle(100ms)) {
    }
    if (row.step == due[0] + 1) first.ask(Request::Kind::kStop);
  };
  ASSERT_TRUE(first.train().ok());
  Session rest(config, other);
  EXPECT_EQ(rest.state_->loss_trend, first.state_->loss_trend);
  wait_for_each(rest);
  ASSERT_TRUE(rest.train().ok());
  EXPECT_THAT(rest.saved(), Contains(due[0]));
  EXPECT_EQ(rest.state_->step, 60U);
  EXPECT_EQ(rest.state_->loss_trend.sum, trend.sum);
}

TEST_F(Saving, NeverTwiceForOneStepHoweverManyReasonsThereAre) {
  ManualClock clock;
  auto config = slow_config(8);
  config.checkpoint.every_steps = 2;
  config.checkpoint.every_seconds = 1;
  config.checkpoint.on_improvement = 0.0001;
  Session run(config, root_, kNoPoison, {.clock = clock, .save_soon = true});
  run.on_row = [&](const metrics::TrainRow& row) {
    while (!run.writer_->wait_idle(100ms)) {
    }
    clock.advance(5s);
    if (row.step % 2 == 0) run.ask(Request::Kind::kCheckpoint);
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.saved(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(run.writer_->stats().saved, 8U);
  EXPECT_EQ(run.writer_->stats().failures, 0U) << "a step was saved again";
  EXPECT_EQ(run.replies_.size(), 4U);
}

TEST_F(Saving, AResumedRunDoesNotSaveTheStepThatItCameFrom) {
  auto config = slow_config(6);
  {
    Session run(config, root_);
    ASSERT_TRUE(run.train().ok());
  }
  Session again(config, root_);
  again.ask(Request::Kind::kCheckpoint);
  ASSERT_TRUE(again.train().ok());
  EXPECT_EQ(again.writer_->stats().saved, 0U);
  EXPECT_EQ(again.writer_->stats().failures, 0U);
}

TEST_F(Saving, WhatComesDueWhileOneIsInFlightIsSkippedAndCounted) {
  Gate gate;
  auto config = slow_config(10);
  config.checkpoint.every_steps = 2;
  Session run(config, root_, kNoPoison, {.before_commit = [&] { gate.pass(); }});
  run.on_row = [&](const metrics::TrainRow& row) {
    if (row.step == 7) gate.open();
    if (row.step >= 7)
      while (!run.writer_->wait_idle(100ms)) {
      }
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.saved(), ElementsAre(2, 8, 10));
  EXPECT_EQ(run.writer_->stats().skipped, 2U);
}

TEST_F(Saving, ARequestWhileItsVeryStepIsInFlightJoinsIt) {
  Gate gate;
  auto config = slow_config(6);
  config.checkpoint.every_steps = 2;
  Session run(config, root_, kNoPoison, {.before_commit = [&] { gate.pass(); }});
  run.on_row = [&](const metrics::TrainRow& row) {
    if (row.step != 2) return;
    run.ask(Request::Kind::kPause);
    run.ask(Request::Kind::kCheckpoint);
    run.mailbox_.post({Request::Kind::kPause, 0, [&](const auto&) { gate.open(); }});
  };
  std::jthread resuming([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && run.writer_->stats().saved == 0) std::this_thread::yield();
    while (!stop.stop_requested() && run.board_.read()->state != control::TrainerState::kPaused)
      std::this_thread::yield();
    run.mailbox_.post({Request::Kind::kResume, 0, {}});
  });
  ASSERT_TRUE(run.train().ok());
  resuming.request_stop();
  EXPECT_THAT(run.replies_, Contains(HasSubstr(R"("step":2,"saved":"before")")));
  EXPECT_EQ(run.saved().front(), 2U);
  EXPECT_EQ(run.writer_->stats().failures, 0U);
}

TEST_F(Saving, SoonSavesTheFirstStep) {
  Session run(slow_config(5), root_, kNoPoison, {.save_soon = true});
  wait_for_each(run);
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.saved(), ElementsAre(1, 5));
}

// ---- Faults, by the rows of the fault table in docs/faults.md

class FailingDisk : public Saving {
 protected:
  // Training to step 12 on a disk that fails every operation from the save of step 4 on, and works
  // again after step `heal_at`.
  Result<Trainer::Outcome> train_on(int error, uint64_t heal_at, const std::string& on_failure,
                                    uint64_t every_steps = 2) {
    auto config = slow_config(12);
    config.checkpoint.every_steps = every_steps;
    config.checkpoint.on_failure = on_failure;
    run_.emplace(config, root_, kNoPoison, Surroundings{.files = files_, .delays = {1ms, 1ms}});
    run_->on_row = [this, error, heal_at](const metrics::TrainRow& row) {
      while (!run_->writer_->wait_idle(100ms)) {
      }
      if (row.step == 4)
        files_.fail_at(files_.operations().size() + 1, {.error = error, .from_here_on = true});
      if (row.step == heal_at) files_.heal();
      states_.push_back(run_->board_.read()->state);
      degraded_.push_back(row.degraded);
    };
    return run_->train();
  }
  void expect_that_training_goes_on(int error) {
    const auto outcome = train_on(error, 9, "continue");
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    EXPECT_EQ(*outcome, Trainer::Outcome::kFinished);
    EXPECT_THAT(run_->saved(), ElementsAre(2, 10, 12));
    EXPECT_EQ(run_->writer_->stats().failures, 9U) << "steps 4, 6 and 8, each tried three times";
    EXPECT_THAT(states_, Contains(control::TrainerState::kDegraded));
    // Of the steps after a save its end may be seen or not: 5 and 11.
    EXPECT_THAT(degraded_, ElementsAre(0, 0, 0, 0, _, 1, 1, 1, 1, 1, _, 0)) << "in the rows";
    EXPECT_FALSE(run_->writer_->is_degraded());
  }

  test::FaultyFiles files_{root_};
  std::optional<Session> run_;
  std::vector<control::TrainerState> states_;
  std::vector<uint64_t> degraded_;  // of each row
};

TEST_F(FailingDisk, FaultRow09AnIoErrorDegradesAndTrainingGoesOn) {
  expect_that_training_goes_on(EIO);
}
TEST_F(FailingDisk, FaultRow10AFullDiskDegradesAndTrainingGoesOn) {
  expect_that_training_goes_on(ENOSPC);
}
TEST_F(FailingDisk, FaultRow11AnExhaustedQuotaDegradesAndTrainingGoesOn) {
  expect_that_training_goes_on(EDQUOT);
}
TEST_F(FailingDisk, FaultRow11ALimitOnFileSizesDegradesAndTrainingGoesOn) {
  expect_that_training_goes_on(EFBIG);
}
TEST_F(FailingDisk, FaultRow13ADiskThatTurnsReadOnlyDegradesAndTrainingGoesOn) {
  expect_that_training_goes_on(EROFS);
}

TEST_F(FailingDisk, FaultRow09StopsSoonWhereTheSettingsSaySo) {
  for (const int error : {EIO, ENOSPC, EDQUOT, EFBIG, EROFS}) {
    root_ = fresh();
    files_.heal();
    const auto outcome = train_on(error, 1000, "stop", 4);
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.status().code(), Code::kIoError);  // exit code 74
    EXPECT_THAT(outcome.status().message(), HasSubstr("checkpoint.on_failure is stop"));
    EXPECT_LE(run_->state_->step, 6U) << "only when the next one was due";
    EXPECT_TRUE(run_->saved().empty());
    run_.reset();
  }
}

// Where checkpoints are rare, the next one that is due may be hours away.
TEST_F(FailingDisk, FaultRow10AFailedOneIsTriedAgainBeforeTheNextIsDue) {
  ManualClock clock;
  auto config = slow_config(20);
  config.checkpoint.every_steps = 4;
  config.train.steps = 11;
  Session run(config, root_, kNoPoison, {.files = files_, .clock = clock});
  run.on_row = [&](const metrics::TrainRow& row) {
    while (!run.writer_->wait_idle(100ms)) {
    }
    if (row.step == 4) files_.fail_at(files_.operations().size() + 1, {ENOSPC, {}, true});
    if (row.step == 5) files_.heal();
    clock.advance(row.step == 6 ? 31s : 1s);
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.saved(), ElementsAre(6, 8, 11));
}

TEST_F(FailingDisk, FaultRow10ALastStateThatCannotBeSavedIsAnError) {
  const auto outcome = train_on(ENOSPC, 1000, "continue");
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.status().code(), Code::kIoError);
  EXPECT_THAT(outcome.status().message(), HasSubstr("the last state could not be saved"));
}

TEST_F(Saving, FaultRow14ADirectoryThatIsMovedAwayIsNotMadeAnew) {
  auto config = slow_config(12);
  config.checkpoint.every_steps = 2;
  Session run(config, root_);
  const std::string here = root_ + "/checkpoints";
  const std::string there = root_ + "/moved";
  std::string error;
  run.on_row = [&](const metrics::TrainRow& row) {
    while (!run.writer_->wait_idle(100ms)) {
    }
    if (row.step == 4) std::filesystem::rename(here, there);
    if (row.step != 7) return;
    EXPECT_TRUE(run.writer_->is_degraded());
    error = run.writer_->stats().last_error;
    EXPECT_FALSE(std::filesystem::exists(here));
    std::filesystem::rename(there, here);
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(error, HasSubstr("moved or removed; bring it back"));
  EXPECT_THAT(run.saved(), ElementsAre(2, 8, 10, 12));
}

TEST_F(Saving, FaultRow35AStateThatIsNotFiniteIsNeverSaved) {
  auto config = slow_config(40);
  config.optimizer.kind = config::OptimizerKind::kSgd;
  config.optimizer.lr = 1e20;
  config.optimizer.clip_norm = 0;
  config.schedule.warmup_steps = 0;
  config.checkpoint.every_steps = 1;
  for (const char* const policy : {"stop", "rollback"}) {
    config.train.on_nonfinite = policy;
    Session run(config, fresh());
    wait_for_each(run);
    const auto outcome = run.train();
    EXPECT_TRUE(!outcome.ok() || *outcome == Trainer::Outcome::kRollBack) << policy;
    // The update that spoils it is that of a step whose own numbers were finite.
    EXPECT_THAT(run.saved(), Each(Le(3U))) << policy;
  }
}

TEST_F(Saving, FaultRow35SkippedStepsInARowAreCountedAcrossAResume) {
  auto config = slow_config(50);
  config.train.on_nonfinite = "skip";
  config.train.nonfinite_limit = 7;
  const auto poisoned = [](uint64_t) { return true; };
  {
    Session run(config, root_, poisoned);
    run.on_row = [&](const metrics::TrainRow& row) {
      if (row.step == 4) run.ask(Request::Kind::kStop);
    };
    ASSERT_TRUE(run.train().ok());
    EXPECT_THAT(run.store_.open_newest({})->manifest().live, HasSubstr("\"nonfinite_in_a_row\":4"));
  }
  Session rest(config, root_, poisoned);
  const auto outcome = rest.train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.status().message(), HasSubstr("at step 7, nor at the 6 steps before"));
}

// It is for people, or an alert, to judge: a loss may well be that large and come down again.
TEST_F(Saving, FaultRow36ALossThatExplodesButStaysFiniteEndsNothing) {
  auto config = slow_config(4);
  config.optimizer.kind = config::OptimizerKind::kSgd;
  config.optimizer.lr = 3;
  config.optimizer.clip_norm = 0;
  config.schedule.warmup_steps = 0;
  Session run(config, root_);
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, Trainer::Outcome::kFinished);
  EXPECT_GT(run.rows_.back().loss, 100 * run.rows_.front().loss) << "it did not explode";
  EXPECT_THAT(run.saved(), ElementsAre(4));
}

}  // namespace
}  // namespace stoker::train
