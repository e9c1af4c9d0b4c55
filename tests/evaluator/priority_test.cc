#include "evaluator/priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include <gtest/gtest.h>

namespace stoker::evaluator {
namespace {

struct ThreadPriority {
  int policy = -1;
  int niceness = 0;
};

// The priority of a thread that was started after lower_priority().
ThreadPriority thread_priority(config::EvaluationPriority priority) {
  ThreadPriority seen;
  std::thread([&] {
    lower_priority(priority);
    std::thread([&] { seen = {::sched_getscheduler(0), ::getpriority(PRIO_PROCESS, 0)}; }).join();
  }).join();
  return seen;
}

TEST(LowerPriorityTest, AppliesToThreadsStartedLater) {
  const ThreadPriority before = {::sched_getscheduler(0), ::getpriority(PRIO_PROCESS, 0)};
  EXPECT_EQ(thread_priority(config::EvaluationPriority::kIdle).policy, SCHED_IDLE);
  EXPECT_EQ(thread_priority(config::EvaluationPriority::kLow).policy, SCHED_BATCH);
  EXPECT_GE(thread_priority(config::EvaluationPriority::kLow).niceness, 10);
  EXPECT_EQ(thread_priority(config::EvaluationPriority::kNormal).policy, before.policy);
  EXPECT_EQ(thread_priority(config::EvaluationPriority::kNormal).niceness, before.niceness);
}

// Text such as "/autogroup-25 nice 10"; empty if the kernel has no autogroups, if kernel.sched_autogroup_enabled is 0
// when a session starts, and in a control group with CPU shares of its own.
std::string own_session() {
  std::ifstream file("/proc/self/autogroup");
  std::string line;
  std::getline(file, line);
  return line;
}

TEST(LowerPriorityTest, LowersOnlyOwnSession) {
  const auto status_of_child = [](auto run) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(run() ? 0 : 1);
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  };
  if (status_of_child([] { return ::setsid() > 0 && !own_session().empty(); }) != 0)
    GTEST_SKIP() << "this kernel has no groups of sessions, or they are disabled";
  const auto lowers = [] {
    lower_priority(config::EvaluationPriority::kLow);
    return own_session().ends_with(" nice 10");
  };
  EXPECT_EQ(status_of_child([&] { return ::setsid() > 0 && lowers(); }), 0);
  // In a session of its own, so that it changes that of the test in no case; a child leads no session.
  EXPECT_EQ(status_of_child([&] {
              return ::setsid() > 0 && status_of_child([&] {
                                         const std::string before = own_session();
                                         return !lowers() && own_session() == before;
                                       }) == 0;
            }),
            0);
}

}  // namespace
}  // namespace stoker::evaluator
