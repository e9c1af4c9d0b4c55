#include "tests/system/kill_report.h"

#include <gtest/gtest.h>

namespace stoker::test {
namespace {

std::string log_from(uint64_t start_step) {
  return "2026-01-01T00:00:00.000Z info    daemon started version=1 run_dir=/start_step=9\n"
         "2026-01-01T00:00:01.000Z info    training started model_digest=ab device=cpu "
         "num_threads=1 start_step=" +
         std::to_string(start_step) +
         " max_steps=400\n"
         "2026-01-01T00:00:02.000Z info    checkpoint saved step=200 bytes=1\n";
}
const std::string kStartupLog = "2026-01-01T00:00:00.000Z info    daemon started version=1\n";

TEST(KillReportTest, FindsStartStepOfFirstTraining) {
  EXPECT_EQ(start_step_of(log_from(120)), 120u);
  EXPECT_EQ(start_step_of(log_from(120) + log_from(160)), 120u);
  EXPECT_EQ(start_step_of(kStartupLog), std::nullopt);
  // The process was killed while it wrote the line.
  EXPECT_EQ(start_step_of(kStartupLog + "Z info    training started model_digest=a"), std::nullopt);
}

TEST(KillReportTest, IsInTrainingBetweenFirstAndLastStep) {
  EXPECT_TRUE(report_kill(log_from(120), 121, 400).is_in_training);
  EXPECT_FALSE(report_kill(log_from(120), 120, 400).is_in_training) << "before the first step";
  EXPECT_FALSE(report_kill(log_from(120), 400, 400).is_in_training) << "after the last step";
  EXPECT_FALSE(report_kill(kStartupLog, 200, 400).is_in_training) << "during startup";
}

TEST(KillReportTest, RejectsKillDuringStartupWhereTrainingIsExpected) {
  KillCounts counts;
  EXPECT_FALSE(count_kill(report_kill(kStartupLog, 200, 400), 160, true, counts));
  EXPECT_TRUE(count_kill(report_kill(kStartupLog, 200, 400), 160, false, counts));
  EXPECT_TRUE(count_kill(report_kill(log_from(160), 200, 400), 160, true, counts));
  EXPECT_EQ(to_string(counts), "3 kills, 1 in training, 1 restarts resumed");
}

TEST(KillReportTest, RejectsRestartFromScratchOrFromOlderCheckpoint) {
  KillCounts counts;
  EXPECT_FALSE(count_start(start_step_of(log_from(0)), 160, counts));
  EXPECT_FALSE(count_start(start_step_of(log_from(120)), 160, counts));
  EXPECT_FALSE(count_kill(report_kill(log_from(120), 200, 400), 160, true, counts));
  EXPECT_EQ(counts.resumed, 0);
  EXPECT_TRUE(count_start(start_step_of(log_from(0)), 0, counts));
  EXPECT_EQ(counts.resumed, 0) << "a new run has nothing to resume";
  EXPECT_TRUE(count_start(start_step_of(log_from(160)), 160, counts));
  EXPECT_EQ(counts.resumed, 1);
}

}  // namespace
}  // namespace stoker::test
