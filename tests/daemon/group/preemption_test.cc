#include "daemon/group/preemption.h"

#include <gtest/gtest.h>

namespace stoker::group {
namespace {

TEST(PreemptionTest, IsPossibleOnlyUnderLauncherOrKubernetes) {
  EXPECT_FALSE(make_preemption_policy({}, {}, {}).is_possible);
  EXPECT_TRUE(make_preemption_policy({.launcher = Launcher::kSlurm}, {}, {}).is_possible);
  EXPECT_TRUE(make_preemption_policy({.is_kubernetes = true}, {}, {}).is_possible);
}

TEST(PreemptionTest, ExitsWithSuccessExceptUnderKubernetes) {
  EXPECT_EQ(make_preemption_policy({.launcher = Launcher::kTorchrun}, {}, {}).exit_code, 0);
  EXPECT_EQ(make_preemption_policy({.is_kubernetes = true}, {}, {}).exit_code, 143);
  EXPECT_EQ(make_preemption_policy({.is_kubernetes = true}, {}, 0).exit_code, 0);
  EXPECT_EQ(make_preemption_policy({}, {}, 99).exit_code, 99);
}

TEST(PreemptionTest, IsRestartedByAgentThatGotNoSignal) {
  LaunchEnvironment elastic{
      .launcher = Launcher::kTorchrun, .world_size = 4, .local_world_size = 2, .job_id = "elastic"};
  EXPECT_EQ(make_preemption_policy(elastic, {}, {}).exit_code, 0);
  EXPECT_EQ(make_preemption_policy(elastic, {}, {}).exit_code_of_others, 73);
  elastic.local_world_size = 4;
  EXPECT_EQ(make_preemption_policy(elastic, {}, {}).exit_code_of_others, 0);
  EXPECT_EQ(make_preemption_policy({.launcher = Launcher::kSlurm}, {}, 5).exit_code_of_others, 5);
}

TEST(PreemptionTest, HasDeadlineBeforeLaunchersKill) {
  EXPECT_EQ(make_preemption_policy({}, {}, {}).deadline, std::chrono::seconds(25));
  EXPECT_EQ(make_preemption_policy({}, 110, {}).deadline, std::chrono::seconds(110));
}

TEST(PreemptionTest, NeedsTimeOfStepsAndCheckpoint) {
  EXPECT_EQ(PreemptionPolicy::needed(500, 3000), std::chrono::seconds(5));
}

}  // namespace
}  // namespace stoker::group
