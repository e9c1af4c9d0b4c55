#include "daemon/service/systemd_notifier.h"

#include <cstdlib>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/log.h"
#include "tests/daemon/service/notify_listener.h"

namespace stoker::service {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SystemdNotifierTest : public ::testing::TestWithParam<NotifyListener::Kind> {};

TEST_P(SystemdNotifierTest, SendsAllNotificationTypes) {
  NotifyListener systemd(GetParam());
  SystemdNotifier notifier(systemd.name(), {});
  notifier.extend_timeout(microseconds(60'000'000));
  notifier.ready();
  notifier.status("step 12 of 2000, loss 1.25");
  notifier.alive();
  notifier.stopping();
  EXPECT_THAT(systemd.take(),
              ElementsAre("EXTEND_TIMEOUT_USEC=60000000", "READY=1",
                          "STATUS=step 12 of 2000, loss 1.25", "WATCHDOG=1", "STOPPING=1"));
}

TEST_P(SystemdNotifierTest, SanitizesStatusToOneLine) {
  NotifyListener systemd(GetParam());
  SystemdNotifier notifier(systemd.name(), {});
  notifier.status("a\nMAINPID=1\n\x01 b");
  EXPECT_THAT(systemd.take(), ElementsAre("STATUS=a MAINPID=1   b"));
}

TEST_P(SystemdNotifierTest, IgnoresClosedSocket) {
  NotifyListener systemd(GetParam());
  SystemdNotifier notifier(systemd.name(), {});
  systemd.close();
  notifier.ready();
  notifier.alive();
}

TEST_P(SystemdNotifierTest, DoesNotBlockWhenSystemdDoesNotRead) {
  NotifyListener systemd(GetParam());
  SystemdNotifier notifier(systemd.name(), {});
  // More than the queue of a datagram socket holds (net.unix.max_dgram_qlen), but few enough for
  // the test's time limit.
  for (int i = 0; i < 14; ++i) notifier.alive();
  EXPECT_FALSE(systemd.take().empty());
}

INSTANTIATE_TEST_SUITE_P(Sockets, SystemdNotifierTest,
                         ::testing::Values(NotifyListener::Kind::kPath,
                                           NotifyListener::Kind::kAbstract),
                         [](const auto& kind) {
                           return kind.param == NotifyListener::Kind::kPath ? "Path" : "Abstract";
                         });

std::string log_of(const std::function<void()>& action) {
  flush_log();  // what other tests have logged
  ::testing::internal::CaptureStderr();
  action();
  flush_log();
  return ::testing::internal::GetCapturedStderr();
}

TEST(SystemdNotifierSetupTest, DoesNothingWithoutSocketAddress) {
  SystemdNotifier notifier("", {});
  notifier.ready();
  notifier.status("x");
}

TEST(SystemdNotifierSetupTest, RejectsInvalidAddress) {
  for (const std::string& bad :
       {std::string("relative"), std::string("/") + std::string(200, 'x'),
        std::string("@") + std::string(200, 'x'), std::string("/nonexistent/socket")}) {
    const std::string log = log_of([&] {
      SystemdNotifier notifier(bad, {});
      notifier.ready();
    });
    const size_t first = log.find("sd_notify failed");
    ASSERT_NE(first, std::string::npos) << log;
    // A notification that is sent nowhere is not reported again.
    EXPECT_EQ(log.find("sd_notify failed", first + 1), std::string::npos) << log;
  }
}

TEST(SystemdNotifierSetupTest, ReadsEnvironment) {
  NotifyListener systemd(NotifyListener::Kind::kPath);
  ::setenv("NOTIFY_SOCKET", systemd.name().c_str(), 1);
  ::setenv("WATCHDOG_USEC", "60000000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  SystemdNotifier notifier;
  for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(name);
  EXPECT_EQ(notifier.find_watchdog_interval(), microseconds(60'000'000));
  notifier.ready();
  EXPECT_THAT(systemd.take(), ElementsAre("READY=1"));
  SystemdNotifier().ready();
  EXPECT_THAT(systemd.take(), IsEmpty());
}

TEST(WatchdogIntervalTest, AcceptsOnlyNumberForOwnPid) {
  EXPECT_EQ(find_watchdog_interval("5", "", 7), microseconds(5));
  EXPECT_EQ(find_watchdog_interval("5", "7", 7), microseconds(5));
  for (const char* usec :
       {"", "0", "-1", "x", "5x", " 5", "18446744073709551615", "99999999999999999999"})
    EXPECT_FALSE(find_watchdog_interval(usec, "", 7).has_value()) << usec;
  for (const char* pid : {"8", "0", "-7", "x"})
    EXPECT_FALSE(find_watchdog_interval("5", pid, 7).has_value()) << pid;
}

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
  const std::string log = log_of([this] {
    for (int i = 0; i < 5; ++i) {
      clock_.advance(29s);
      tick(TrainerState::kTraining);
    }
    ++progress_;
    tick(TrainerState::kTraining);
  });
  const size_t first = log.find("training stalled");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("training stalled", first + 1), std::string::npos) << log;
  EXPECT_NE(log.find("state=training", first), std::string::npos) << log;
  EXPECT_NE(log.find("training recovered"), std::string::npos) << log;
}

}  // namespace
}  // namespace stoker::service
