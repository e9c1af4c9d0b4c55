#include "evaluator/priority.h"

#include <sched.h>
#include <sys/resource.h>

#include <string_view>
#include <thread>

#include <gtest/gtest.h>

namespace stoker::evaluator {
namespace {

struct Seen {
  int policy = -1;
  int niceness = 0;
};

// By a thread that was started after it gave way.
Seen seen_with(std::string_view priority) {
  Seen seen;
  std::thread([&] {
    give_way(priority);
    std::thread([&] { seen = {::sched_getscheduler(0), ::getpriority(PRIO_PROCESS, 0)}; }).join();
  }).join();
  return seen;
}

TEST(Priority, HoldsForTheThreadsThatAreStartedLater) {
  const Seen before = {::sched_getscheduler(0), ::getpriority(PRIO_PROCESS, 0)};
  EXPECT_EQ(seen_with("idle").policy, SCHED_IDLE);
  EXPECT_EQ(seen_with("low").policy, SCHED_BATCH);
  EXPECT_GE(seen_with("low").niceness, 10);
  EXPECT_EQ(seen_with("normal").policy, before.policy);
  EXPECT_EQ(seen_with("normal").niceness, before.niceness);
}

}  // namespace
}  // namespace stoker::evaluator
