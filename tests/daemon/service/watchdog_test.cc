#include "daemon/service/watchdog.h"

#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/log.h"

namespace stoker::service {
namespace {

using namespace std::chrono_literals;
using control::TrainerPhase;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class WatchdogTest : public ::testing::Test {
 protected:
  // Checks once a second. The second of the end, counted from the call; 0: it has not ended.
  int seconds_until_expired(int limit) {
    for (int second = 1; second <= limit; ++second) {
      clock_.advance(1s);
      expired_ = watchdog_.check();
      if (expired_) return second;
    }
    return 0;
  }
  std::string log_of(const std::function<void()>& action) {
    flush_log();
    ::testing::internal::CaptureStderr();
    action();
    flush_log();
    return ::testing::internal::GetCapturedStderr();
  }
  // In `phase` for as long as the last check() knows.
  void enter(TrainerPhase phase) {
    run_.phase = phase;
    (void)watchdog_.check();
  }

  ManualClock clock_;
  WatchedRun run_;
  config::WatchdogConfig config_{.start_timeout_seconds = 40,
                                 .step_timeout_seconds = 10,
                                 .checkpoint_timeout_seconds = 30,
                                 .data_timeout_seconds = 20};
  Watchdog watchdog_{config_, clock_, [this] { return run_; }};
  std::optional<Watchdog::Expired> expired_;
};

TEST_F(WatchdogTest, EndsEachPhaseAfterItsTimeout) {
  for (const auto& [phase, timeout] : {std::pair(TrainerPhase::kStart, 40),
                                       {TrainerPhase::kStep, 10},
                                       {TrainerPhase::kCheckpoint, 30},
                                       {TrainerPhase::kData, 20}}) {
    enter(phase);
    EXPECT_EQ(seconds_until_expired(100), timeout) << control::to_string(phase);
    ASSERT_TRUE(expired_.has_value());
    EXPECT_EQ(expired_->phase, phase);
    EXPECT_EQ(expired_->idle, std::chrono::seconds(timeout));
  }
}

TEST_F(WatchdogTest, WaitsForeverWhileUnwatched) {
  enter(TrainerPhase::kUnwatched);
  EXPECT_EQ(seconds_until_expired(10000), 0);
}

TEST_F(WatchdogTest, StartsAgainAtProgress) {
  enter(TrainerPhase::kStep);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(seconds_until_expired(9), 0);
    ++run_.progress;
    (void)watchdog_.check();
  }
  EXPECT_EQ(seconds_until_expired(100), 10);
}

TEST_F(WatchdogTest, StartsAgainInAnotherPhase) {
  enter(TrainerPhase::kStep);
  EXPECT_EQ(seconds_until_expired(9), 0);
  enter(TrainerPhase::kData);
  EXPECT_EQ(seconds_until_expired(19), 0);
  enter(TrainerPhase::kStep);
  EXPECT_EQ(seconds_until_expired(100), 10);
}

TEST_F(WatchdogTest, EndsSaveThatHangsWhileTrainingMakesProgress) {
  run_.phase = TrainerPhase::kStep;
  run_.save_progress = 3;
  (void)watchdog_.check();
  for (int second = 1; second < 30; ++second) {
    ++run_.progress;
    ASSERT_EQ(seconds_until_expired(1), 0) << second;
  }
  ++run_.progress;
  ASSERT_EQ(seconds_until_expired(1), 1);
  EXPECT_EQ(expired_->phase, TrainerPhase::kCheckpoint);
}

TEST_F(WatchdogTest, GivesEachAttemptToSaveTheWholeTimeout) {
  run_.save_progress = 0;
  (void)watchdog_.check();
  EXPECT_EQ(seconds_until_expired(29), 0);
  run_.save_progress = 1;
  (void)watchdog_.check();
  EXPECT_EQ(seconds_until_expired(29), 0);
  run_.save_progress.reset();
  EXPECT_EQ(seconds_until_expired(1000), 0);
}

// After SIGSTOP and SIGCONT, or a suspended machine.
TEST_F(WatchdogTest, DoesNotCountTimeInWhichProcessWasStopped) {
  enter(TrainerPhase::kStep);
  EXPECT_EQ(seconds_until_expired(5), 0);
  clock_.advance(10min);
  EXPECT_FALSE(watchdog_.check().has_value());
  EXPECT_EQ(seconds_until_expired(100), 4);
}

TEST_F(WatchdogTest, LogsHalfTimeOnceAndRecovery) {
  enter(TrainerPhase::kData);
  const std::string early = log_of([this] { seconds_until_expired(9); });
  EXPECT_THAT(early, IsEmpty());
  const std::string log = log_of([this] {
    run_.step = 7;
    seconds_until_expired(10);
  });
  EXPECT_THAT(log, AllOf(HasSubstr("training stalled phase=data duration_seconds=10"),
                         HasSubstr("timeout_seconds=20"), HasSubstr("step=7"),
                         HasSubstr("waiting_for=\"a batch of the workers")));
  EXPECT_EQ(log.find("training stalled"), log.rfind("training stalled"));
  const std::string later = log_of([this] { enter(TrainerPhase::kStep); });
  EXPECT_THAT(later, HasSubstr("training recovered phase=data"));
  EXPECT_THAT(log_of([this] { enter(TrainerPhase::kData); }), Not(HasSubstr("recovered")));
}

TEST_F(WatchdogTest, NamesSettingOfExpiredPhase) {
  enter(TrainerPhase::kStep);
  EXPECT_THAT(log_of([this] { seconds_until_expired(10); }),
              AllOf(HasSubstr("watchdog expired phase=step"),
                    HasSubstr("increase watchdog.step_timeout_seconds")));
}

TEST(WatchdogWithoutLimitsTest, NeverExpires) {
  ManualClock clock;
  WatchedRun run{.phase = TrainerPhase::kStep, .progress = 0, .save_progress = 1, .step = 0};
  Watchdog watchdog({.start_timeout_seconds = std::nullopt,
                     .step_timeout_seconds = std::nullopt,
                     .checkpoint_timeout_seconds = std::nullopt,
                     .data_timeout_seconds = std::nullopt},
                    clock, [&run] { return run; });
  for (int i = 0; i < 1000; ++i) {
    clock.advance(1s);
    ASSERT_FALSE(watchdog.check().has_value());
  }
}

}  // namespace
}  // namespace stoker::service
