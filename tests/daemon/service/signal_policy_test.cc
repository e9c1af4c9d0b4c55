#include "daemon/service/signal_policy.h"

#include <signal.h>

#include <gtest/gtest.h>

namespace stoker::service {
namespace {

TEST(SignalPolicyTest, StopsGracefullyOnFirstSignalAndImmediatelyOnSecond) {
  for (const int first : {SIGTERM, SIGINT}) {
    for (const int second : {SIGTERM, SIGINT}) {
      SignalPolicy policy;
      EXPECT_EQ(policy.on_signal(first), SignalAction::kStopGracefully);
      EXPECT_EQ(policy.on_signal(second), SignalAction::kForceExit);
      EXPECT_EQ(policy.on_signal(second), SignalAction::kForceExit);
    }
  }
}

TEST(SignalPolicyTest, DoesNotCountReloadOrSaveAsStop) {
  SignalPolicy policy;
  EXPECT_EQ(policy.on_signal(SIGHUP), SignalAction::kReload);
  EXPECT_EQ(policy.on_signal(SIGUSR1), SignalAction::kSave);
  EXPECT_EQ(policy.on_signal(SIGHUP), SignalAction::kReload);
  EXPECT_EQ(policy.on_signal(SIGTERM), SignalAction::kStopGracefully);
}

TEST(SignalPolicyTest, IgnoresReloadAndSaveAfterStop) {
  SignalPolicy policy;
  policy.on_signal(SIGTERM);
  EXPECT_EQ(policy.on_signal(SIGHUP), SignalAction::kIgnore);
  EXPECT_EQ(policy.on_signal(SIGUSR1), SignalAction::kIgnore);
  EXPECT_EQ(policy.on_signal(SIGTERM), SignalAction::kForceExit);
}

TEST(SignalPolicyTest, IgnoresOtherSignals) {
  SignalPolicy policy;
  for (const int other : {SIGUSR2, SIGCHLD, SIGWINCH, SIGPIPE})
    EXPECT_EQ(policy.on_signal(other), SignalAction::kIgnore);
  EXPECT_EQ(policy.on_signal(SIGINT), SignalAction::kStopGracefully);
}

}  // namespace
}  // namespace stoker::service
