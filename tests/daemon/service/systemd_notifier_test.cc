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
  SystemdNotifier notifier(systemd.name());
  notifier.extend_timeout(microseconds(60'000'000));
  notifier.ready();
  notifier.status("step 12 of 2000, loss 1.25");
  notifier.reloading(std::chrono::nanoseconds(1'500'999));
  notifier.alive();
  notifier.stopping();
  EXPECT_THAT(
      systemd.take(),
      ElementsAre("EXTEND_TIMEOUT_USEC=60000000", "READY=1", "STATUS=step 12 of 2000, loss 1.25",
                  "RELOADING=1\nMONOTONIC_USEC=1500", "WATCHDOG=1", "STOPPING=1"));
}

TEST_P(SystemdNotifierTest, SanitizesStatusToOneLine) {
  NotifyListener systemd(GetParam());
  SystemdNotifier notifier(systemd.name());
  notifier.status("a\nMAINPID=1\n\x01 b");
  EXPECT_THAT(systemd.take(), ElementsAre("STATUS=a MAINPID=1   b"));
}

TEST_P(SystemdNotifierTest, IgnoresClosedSocket) {
  NotifyListener systemd(GetParam());
  SystemdNotifier notifier(systemd.name());
  systemd.close();
  notifier.ready();
  notifier.alive();
}

TEST_P(SystemdNotifierTest, DoesNotBlockWhenSystemdDoesNotRead) {
  NotifyListener systemd(GetParam());
  SystemdNotifier notifier(systemd.name());
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
  SystemdNotifier notifier("");
  notifier.ready();
  notifier.status("x");
}

TEST(SystemdNotifierSetupTest, RejectsInvalidAddress) {
  for (const std::string& bad :
       {std::string("relative"), std::string("/") + std::string(200, 'x'),
        std::string("@") + std::string(200, 'x'), std::string("/nonexistent/socket")}) {
    const std::string log = log_of([&] {
      SystemdNotifier notifier(bad);
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
  SystemdNotifier notifier;
  ::unsetenv("NOTIFY_SOCKET");
  notifier.ready();
  EXPECT_THAT(systemd.take(), ElementsAre("READY=1"));
  SystemdNotifier().ready();
  EXPECT_THAT(systemd.take(), IsEmpty());
}

}  // namespace
}  // namespace stoker::service
