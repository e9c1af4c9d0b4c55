#include "daemon/service/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/log.h"
#include "tests/daemon/service/notify_listener.h"

namespace stoker::service {
namespace {

using control::TrainerState;
using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WatchdogTest : public ::testing::Test {
 protected:
  std::vector<std::string> tick(TrainerState state) {
    control::TrainerStatus status;
    status.state = state;
    watchdog_.tick(status);
    return systemd_.take();
  }

  NotifyListener systemd_{NotifyListener::Kind::kPath};
  SystemdNotifier notifier_{systemd_.name(), 60'000'000us};
  ManualClock clock_;
  uint64_t progress_ = 5;
  Watchdog watchdog_{notifier_, clock_, [this] { return progress_; }};
};

TEST_F(WatchdogTest, PingsOnTrainingProgress) {
  ++progress_;
  EXPECT_THAT(tick(TrainerState::kTraining), ElementsAre("WATCHDOG=1"));
  EXPECT_THAT(tick(TrainerState::kTraining), IsEmpty());
  ++progress_;
  EXPECT_THAT(tick(TrainerState::kDegraded), ElementsAre("WATCHDOG=1"));
}

TEST_F(WatchdogTest, SendsNoPingWhileTrainingIsStalled) {
  for (int minute = 0; minute < 120; ++minute) {
    clock_.advance(1min);
    EXPECT_THAT(tick(TrainerState::kTraining), IsEmpty());
  }
  EXPECT_EQ(watchdog_.stalled_for(), 120min);
}

TEST_F(WatchdogTest, PingsWhilePaused) {
  for (int hour = 0; hour < 48; ++hour) {
    clock_.advance(1h);
    EXPECT_THAT(tick(TrainerState::kPaused), ElementsAre("WATCHDOG=1"));
  }
}

TEST_F(WatchdogTest, ExtendsStartTimeoutWhileStarting) {
  for (int hour = 0; hour < 5; ++hour) {
    clock_.advance(1h);
    EXPECT_THAT(tick(TrainerState::kStarting),
                ElementsAre("EXTEND_TIMEOUT_USEC=60000000", "WATCHDOG=1"));
  }
}

TEST_F(WatchdogTest, PingsDuringSaveUntilMaximumDuration) {
  clock_.advance(kMaxSaveDuration - 1s);
  EXPECT_THAT(tick(TrainerState::kSaving), ElementsAre("WATCHDOG=1"));
  EXPECT_THAT(tick(TrainerState::kStopping),
              ElementsAre("EXTEND_TIMEOUT_USEC=60000000", "WATCHDOG=1"));
  clock_.advance(1s);
  EXPECT_THAT(tick(TrainerState::kSaving), IsEmpty());
  EXPECT_THAT(tick(TrainerState::kStopping), IsEmpty());
}

TEST_F(WatchdogTest, TreatsCounterResetAsProgress) {
  progress_ = 0;
  EXPECT_THAT(tick(TrainerState::kTraining), ElementsAre("WATCHDOG=1"));
}

TEST_F(WatchdogTest, LogsStallOnceAndItsRecovery) {
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 5; ++i) {
    clock_.advance(29s);
    tick(TrainerState::kTraining);
  }
  ++progress_;
  tick(TrainerState::kTraining);
  flush_log();
  const std::string log = ::testing::internal::GetCapturedStderr();
  const size_t first = log.find("training stalled");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("training stalled", first + 1), std::string::npos) << log;
  EXPECT_NE(log.find("state=training", first), std::string::npos) << log;
  EXPECT_NE(log.find("training recovered"), std::string::npos) << log;
}

}  // namespace
}  // namespace stoker::service
