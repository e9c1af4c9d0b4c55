#include "shared/base/coordinator.h"

#include <signal.h>

#include <atomic>
#include <latch>
#include <stdexcept>

#include <gtest/gtest.h>

#include "tests/support/logged_text.h"

namespace stoker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Status wait_for(std::stop_token stop, std::latch& released) {
  std::stop_callback release(stop, [&] { released.count_down(); });
  released.wait();
  return {};
}

TEST(CoordinatorTest, ReportsFirstErrorAndDropsLaterOnes) {
  Coordinator coordinator;
  coordinator.request_stop(Status(StatusCode::kIoError, "first"));
  coordinator.request_stop(Status(StatusCode::kInternal, "second"));
  EXPECT_EQ(coordinator.join(seconds(5)).message(), "first");
}

TEST(CoordinatorTest, ReportsSuccessWhenErrorFollowsCleanStop) {
  Coordinator coordinator;
  coordinator.request_stop();
  coordinator.request_stop(Status(StatusCode::kInternal, "late"));
  EXPECT_TRUE(coordinator.join(seconds(5)).ok());
}

TEST(CoordinatorTest, StopsAllThreadsAndReportsFailedThread) {
  Coordinator coordinator;
  std::latch released(1);
  coordinator.start("waiter", [&](std::stop_token stop) { return wait_for(stop, released); });
  coordinator.start("reader",
                    [](std::stop_token) { return Status(StatusCode::kIoError, "disk on fire"); });
  const Status status = coordinator.join(seconds(30));
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_EQ(status.message(), "disk on fire") << "the name of a thread says nothing to a user";
}

TEST(CoordinatorTest, ReportsErrorWithThreadNameOnException) {
  Coordinator coordinator;
  coordinator.start("thrower",
                    [](std::stop_token) -> Status { throw std::runtime_error("broken"); });
  const Status status = coordinator.join(seconds(30));
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message(), "thrower: broken");
}

TEST(CoordinatorTest, RepeatsWorkOfOwnerUntilThreadsEnd) {
  Coordinator coordinator;
  int calls = 0;
  std::latch three_calls(3);
  coordinator.start("waiter", [&](std::stop_token) {
    three_calls.wait();
    return Status();
  });
  coordinator.repeat_until_end(milliseconds(1), [&] {
    if (++calls <= 3) three_calls.count_down();
  });
  EXPECT_GE(calls, 3);
  EXPECT_TRUE(coordinator.join(seconds(60)).ok());
  EXPECT_TRUE(coordinator.all_joined());
  calls = 0;
  coordinator.repeat_until_end(seconds(3600), [&] { ++calls; });
  EXPECT_EQ(calls, 1) << "no thread runs";
}

TEST(CoordinatorTest, StopEndsRepeatedWork) {
  Coordinator coordinator;
  std::latch released(1);
  coordinator.start("waiter", [&](std::stop_token stop) { return wait_for(stop, released); });
  coordinator.repeat_until_end(seconds(3600), [&] { coordinator.request_stop(); });
  EXPECT_TRUE(coordinator.should_stop());
  EXPECT_TRUE(coordinator.join(seconds(60)).ok());
}

TEST(CoordinatorTest, RequestsNoStopWhenThreadsReturnNormally) {
  Coordinator coordinator;
  coordinator.start("worker", [](std::stop_token) { return Status(); });
  coordinator.start("closed",
                    [](std::stop_token) { return Status(StatusCode::kClosed, "end of data"); });
  EXPECT_TRUE(coordinator.join(seconds(30)).ok());
  EXPECT_FALSE(coordinator.should_stop());
  EXPECT_TRUE(coordinator.all_joined());
}

TEST(CoordinatorTest, ReportsRunningThreadsWhenJoinTimesOut) {
  std::latch hold(1);
  Coordinator coordinator;
  coordinator.start("stubborn", [&](std::stop_token) {
    hold.wait();  // ignores the stop token
    return Status();
  });
  coordinator.request_stop();
  const Status status = coordinator.join(milliseconds(1));
  EXPECT_EQ(status.code(), StatusCode::kTimedOut);
  EXPECT_NE(status.message().find("stubborn"), std::string::npos);
  hold.count_down();
}

TEST(CoordinatorTest, RunsThreadStartedAfterStopWithStopRequested) {
  Coordinator coordinator;
  coordinator.request_stop();
  std::atomic<bool> saw_stop = false;
  coordinator.start("late", [&](std::stop_token stop) {
    saw_stop = stop.stop_requested();
    return Status();
  });
  EXPECT_TRUE(coordinator.join(seconds(60)).ok());
  EXPECT_TRUE(saw_stop);
  saw_stop = false;
  coordinator.start("too late", [&](std::stop_token) {
    saw_stop = true;
    return Status();
  });
  EXPECT_TRUE(coordinator.all_joined());
  EXPECT_FALSE(saw_stop);
}

TEST(CoordinatorTest, WakesWaitingThreadOnStop) {
  Coordinator coordinator;
  std::atomic<bool> stopped{false};
  coordinator.start("sleeper", [&](std::stop_token) {
    stopped = coordinator.wait_for_stop(seconds(3600));
    return Status();
  });
  coordinator.request_stop();
  EXPECT_TRUE(coordinator.join(seconds(30)).ok());
  EXPECT_TRUE(stopped);
}

TEST(CoordinatorTest, TimesOutWaitWithoutStop) {
  Coordinator coordinator;
  EXPECT_FALSE(coordinator.wait_for_stop(milliseconds(1)));
}

TEST(CoordinatorTest, BlocksAllSignalsInThreads) {
  Coordinator coordinator;
  std::atomic<int> blocked{0};
  coordinator.start("signals", [&](std::stop_token) {
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    blocked =
        sigismember(&mask, SIGTERM) + sigismember(&mask, SIGHUP) + sigismember(&mask, SIGUSR1);
    return Status();
  });
  EXPECT_TRUE(coordinator.join(seconds(30)).ok());
  EXPECT_EQ(blocked, 3);
  sigset_t mine;
  pthread_sigmask(SIG_BLOCK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGTERM), 0);
}

TEST(CoordinatorTest, NamesRunningThreadsWhenReasonIsKnown) {
  std::latch hold(1);
  Coordinator coordinator;
  coordinator.start("stubborn", [&](std::stop_token) {
    hold.wait();
    return Status();
  });
  coordinator.request_stop(Status(StatusCode::kIoError, "disk on fire"));
  const std::string log =
      test::log_of([&] { EXPECT_EQ(coordinator.join(milliseconds(1)).message(), "disk on fire"); });
  EXPECT_NE(log.find("stubborn"), std::string::npos);
  hold.count_down();
}

TEST(CoordinatorTest, WaitsForRegisteredThread) {
  Coordinator coordinator;
  std::latch registered(1);
  std::jthread outside([&] {
    const auto registration = coordinator.register_thread("from a library");
    registered.count_down();
    coordinator.wait_for_stop(seconds(60));
  });
  registered.wait();
  EXPECT_FALSE(coordinator.all_joined());
  EXPECT_EQ(coordinator.clear_stop().message(), "threads are running: from a library");
  coordinator.request_stop();
  EXPECT_TRUE(coordinator.join(seconds(60)).ok());
  EXPECT_TRUE(coordinator.all_joined());
  const auto late = coordinator.register_thread("after the end");
  EXPECT_TRUE(coordinator.all_joined());
}

TEST(CoordinatorTest, StartsAgainAfterClearStop) {
  Coordinator coordinator;
  coordinator.start("reader",
                    [](std::stop_token) { return Status(StatusCode::kIoError, "disk on fire"); });
  EXPECT_FALSE(coordinator.join(seconds(60)).ok());
  EXPECT_TRUE(coordinator.clear_stop().ok());
  EXPECT_FALSE(coordinator.should_stop());
  EXPECT_FALSE(coordinator.token().stop_requested());
  EXPECT_TRUE(coordinator.reason().ok());
  std::atomic<bool> has_run = false;
  coordinator.start("second", [&](std::stop_token stop) {
    has_run = !stop.stop_requested();
    return Status();
  });
  EXPECT_TRUE(coordinator.join(seconds(60)).ok());
  EXPECT_TRUE(has_run);
}

TEST(CoordinatorTest, StopsOnExceptionInCallingThread) {
  Coordinator coordinator;
  EXPECT_TRUE(coordinator.stop_on_exception("main", [](std::stop_token) { return Status(); }).ok());
  EXPECT_TRUE(
      coordinator
          .stop_on_exception(
              "main", [](std::stop_token) { return Status(StatusCode::kClosed, "end of data"); })
          .code() == StatusCode::kClosed);
  EXPECT_FALSE(coordinator.should_stop());
  const Status status = coordinator.stop_on_exception(
      "main", [](std::stop_token) -> Status { throw std::runtime_error("broken"); });
  EXPECT_EQ(status.message(), "main: broken");
  EXPECT_TRUE(coordinator.should_stop());
  EXPECT_EQ(coordinator.join(seconds(60)).message(), "main: broken");
}

TEST(CoordinatorTest, RejectsCancellationThatNoStopExplains) {
  for (const StatusCode code : {StatusCode::kCancelled, StatusCode::kClosed}) {
    const Status cancelled(code, "data.val: a worker process says so");
    EXPECT_EQ(require_stop(cancelled, true).code(), code);
    const Status status = require_stop(cancelled, false);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find(cancelled.message()), std::string::npos);
  }
  EXPECT_TRUE(require_stop(Status(), false).ok());
  EXPECT_EQ(require_stop(Status(StatusCode::kBusy, "locked"), false).code(), StatusCode::kBusy);
}

TEST(CoordinatorTest, ListsThreadsUntilItIsDestroyed) {
  const auto states_of = [](const std::string& name) {
    std::vector<ThreadState> states;
    for (const ThreadInfo& thread : list_threads().threads)
      if (thread.name == name) states.push_back(thread.state);
    return states;
  };
  {
    Coordinator coordinator;
    coordinator.start("a thread with a long name", [](std::stop_token) { return Status(); });
    EXPECT_TRUE(coordinator.join(seconds(60)).ok());
    EXPECT_EQ(states_of("a thread with a long name"), std::vector{ThreadState::kStopped});
  }
  EXPECT_TRUE(states_of("a thread with a long name").empty());
}

}  // namespace
}  // namespace stoker
