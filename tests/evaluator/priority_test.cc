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

// Text such as "/autogroup-25 nice 10"; empty if the kernel has no autogroups.
std::string own_session() {
  std::ifstream file("/proc/self/autogroup");
  std::string line;
  std::getline(file, line);
  return line;
}

TEST(LowerPriorityTest, LowersOnlyOwnSession) {
  const std::string before = own_session();
  if (before.empty()) GTEST_SKIP() << "this kernel has no groups of sessions";
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    lower_priority(config::EvaluationPriority::kLow);
    ::_exit(own_session().ends_with(" nice 10") ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  if (::getsid(0) == ::getpid()) return;  // the test process is a session leader
  std::thread([] { lower_priority(config::EvaluationPriority::kLow); }).join();
  EXPECT_EQ(own_session(), before);
}

}  // namespace
}  // namespace stoker::evaluator
