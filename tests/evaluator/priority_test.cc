#include "evaluator/priority.h"

#include <sched.h>
#include <sys/resource.h>

#include <thread>

#include <gtest/gtest.h>

namespace stoker::evaluator {
namespace {

config::Config settings(const std::string& device, int train_threads, int eval_threads) {
  config::Config config;
  config.train.device = device;
  config.train.threads = train_threads;
  config.eval.threads = eval_threads;
  return config;
}

TEST(Priority, IsIdleWhereTheTrainerLeavesCores) {
  EXPECT_EQ(priority_of(settings("cpu", 1, 1), 2), Priority::kIdle);
  EXPECT_EQ(priority_of(settings("cuda:0", 0, 0), 2), Priority::kIdle);
}

TEST(Priority, IsLowWhereTheTrainerMayTakeAllSoThatTheEvaluationGetsOn) {
  EXPECT_EQ(priority_of(settings("cpu", 2, 1), 2), Priority::kLow);
  EXPECT_EQ(priority_of(settings("cpu", 0, 1), 8), Priority::kLow) << "0: one thread a core";
  EXPECT_EQ(priority_of(settings("cpu", 1, 0), 8), Priority::kLow);
  EXPECT_EQ(priority_of(settings("auto", 0, 1), 8), Priority::kLow) << "there may be no GPU";
}

TEST(Priority, IsWhatIsAskedFor) {
  config::Config config = settings("cpu", 8, 8);
  for (const auto& [name, wanted] : {std::pair{"idle", Priority::kIdle},
                                     {"low", Priority::kLow},
                                     {"normal", Priority::kNormal}}) {
    config.eval.priority = name;
    EXPECT_EQ(priority_of(config, 2), wanted) << name;
  }
}

TEST(Priority, HoldsForTheThreadAndThoseThatItStarts) {
  struct Seen {
    int policy = -1;
    int niceness = 0;
  };
  const auto seen_by_a_child_of = [](Priority priority) {
    Seen seen;
    std::thread([&] {
      give_way(priority);
      std::thread([&] { seen = {::sched_getscheduler(0), ::getpriority(PRIO_PROCESS, 0)}; }).join();
    }).join();
    return seen;
  };
  const int before = ::getpriority(PRIO_PROCESS, 0);
  EXPECT_EQ(seen_by_a_child_of(Priority::kIdle).policy, SCHED_IDLE);
  EXPECT_EQ(seen_by_a_child_of(Priority::kLow).policy, SCHED_BATCH);
  EXPECT_EQ(seen_by_a_child_of(Priority::kLow).niceness, 10);
  EXPECT_EQ(seen_by_a_child_of(Priority::kNormal).niceness, before);
}

}  // namespace
}  // namespace stoker::evaluator
