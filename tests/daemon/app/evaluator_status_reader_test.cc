#include "daemon/app/evaluator_status_reader.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/run/eval_result.h"
#include "shared/run/evaluation_outcomes.h"
#include "shared/run/lineage.h"
#include "shared/run/run_state.h"
#include "tests/support/temporary_directory.h"

namespace stoker::app {
namespace {

using namespace std::chrono_literals;

class EvaluatorStatusReaderTest : public testing::Test {
 protected:
  EvaluatorStatusReaderTest() {
    std::filesystem::create_directories(layout_.eval_dir());
    std::ofstream(layout_.eval_lock_file()) << "";
  }
  void write_result(uint64_t step) {
    ASSERT_TRUE(run::write_eval_result(default_file_system(), layout_.eval_dir(),
                                       {.step = step, .manifest_sha256 = manifest_of(step)})
                    .ok());
  }
  // As the evaluator does after the result.
  void write_outcome(uint64_t step) {
    std::ofstream(layout_.evaluation_outcomes_file(), std::ios::app) << run::to_json_line(
        {.step = step, .manifest_sha256 = manifest_of(step)}, "2026-01-31T12:00:00.000Z");
  }
  static std::string manifest_of(uint64_t step) { return "manifest-" + std::to_string(step); }
  uint64_t last_evaluated() {
    clock_.advance(1s);
    return reader_.read_cached().last_evaluated_step;
  }

  const test::TemporaryDirectory folder_;
  const run::RunLayout layout_{folder_.path()};
  ManualClock clock_;
  EvaluatorStatusReader reader_{layout_, clock_};
};

// Otherwise each status would cost as much as there are checkpoints.
TEST_F(EvaluatorStatusReaderTest, ReadsResultsOnlyAfterChange) {
  EXPECT_EQ(last_evaluated(), 0u);
  for (const uint64_t step : {10, 20}) {
    write_result(step);
    write_outcome(step);
    EXPECT_EQ(last_evaluated(), step);
  }
  EXPECT_EQ(reader_.read_cached().state, "crashed");  // it has left a lock, and no exit status
  std::filesystem::remove(run::eval_result_path(layout_.eval_dir(), 20));
  EXPECT_EQ(last_evaluated(), 20u) << "nothing was read again";
  const run::CheckpointId earlier{10, manifest_of(10)};
  ASSERT_TRUE(run::add_resumed(default_file_system(), layout_.lineage_file(), earlier).ok());
  EXPECT_EQ(last_evaluated(), 10u);
}

TEST_F(EvaluatorStatusReaderTest, ReportsEndOfEvaluator) {
  const auto end = [&](run::RunOutcome outcome) {
    std::ofstream(layout_.eval_exit_status_file())
        << run::to_json(run::ExitStatus{outcome, 0, "no memory left", 71});
    clock_.advance(1s);
    return reader_.read_cached();
  };
  EXPECT_EQ(end(run::RunOutcome::kFinished).state, "exited");
  EXPECT_EQ(end(run::RunOutcome::kStopped).state, "exited");
  EXPECT_EQ(reader_.read_cached().reason, "");
  EXPECT_EQ(end(run::RunOutcome::kFailed).state, "failed");
  EXPECT_EQ(reader_.read_cached().reason, "no memory left");
  const auto lock = lock_file(layout_.eval_lock_file(), "");
  ASSERT_TRUE(lock.ok());
  clock_.advance(1s);
  EXPECT_EQ(reader_.read_cached().state, "running");
}

TEST_F(EvaluatorStatusReaderTest, LeavesResultsOfFormerBranch) {
  for (const uint64_t step : {10, 20}) {
    write_result(step);
    write_outcome(step);
  }
  EXPECT_EQ(last_evaluated(), 20u);
  const run::CheckpointId earlier{10, manifest_of(10)};
  ASSERT_TRUE(run::add_resumed(default_file_system(), layout_.lineage_file(), earlier).ok());
  EXPECT_EQ(last_evaluated(), 10u);
}

}  // namespace
}  // namespace stoker::app
