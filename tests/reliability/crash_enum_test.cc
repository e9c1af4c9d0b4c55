// SIGKILL before each system call on the run directory, and in the middle of each write, during
// start, save, retention and end of a run. Each kill is followed by a restart.
#include <filesystem>
#include <iostream>
#include <set>

#include "tests/reliability/minimal_run_check.h"
#include "tests/reliability/save_phase.h"
#include "tests/support/temporary_directory.h"

namespace stoker::test {
namespace {

class CrashEnumerationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = untraceable_reason()) GTEST_SKIP() << *why;
  }

  // From here on, each run resumes at step 15 and removes the leftovers of a crash.
  void start_with_leftovers() {
    ASSERT_NO_FATAL_FAILURE(make_run_with_leftovers(base_, folder_ / "base.out"));
    first_step_ = 15;
  }
  // Prepares the run directory; it does not exist if the run starts from scratch.
  void prepare(const std::string& run) const {
    if (first_step_ > 0) copy_tree(base_, run);
  }

  // All file calls in these phases of a run; of a new run, only those before its second checkpoint
  // is acknowledged.
  std::vector<KillPoint> find_points(const std::set<SavePhase>& phases) {
    const std::string run = folder_ / "census";
    const std::string output = folder_ / "census.out";
    prepare(run);
    std::vector<KillPoint> points;
    SavePhaseWatch watch;
    const auto record_point = [&](const FileCall& call) {
      const bool is_counted = phases.contains(watch.at(call)) &&
                              (first_step_ > 0 || newest_saved(output) < 2 * kMinimalRunSaveEvery);
      if (is_counted) add_kill_points(call, points);
      return Verdict::kContinue;
    };
    EXPECT_EQ(run_minimal_run(run, output, record_point).code, 0);
    return points;
  }

  // Kills a run at `point`, checks the run directory and then the next start.
  void kill_at(const KillPoint& point) {
    TemporaryDirectory scene(quick_folder());
    const std::string run = scene / "run";
    const std::string output = scene / "output";
    prepare(run);
    std::string location = "not reached";
    const auto end = run_minimal_run(
        run, output, [&](const FileCall& call) { return verdict_at(call, point, location); });
    SCOPED_TRACE(location);
    // The number of calls can vary, because the run has two threads.
    if (end.signal == 0) {
      ++unreached_;
    } else {
      ++(newest_visible(run) == first_step_ ? old_ : newer_);
    }
    EXPECT_TRUE(all_checkpoints_valid(run, std::max(first_step_, newest_saved(output))));
    EXPECT_TRUE(resumes_to_same_result(run, output));
  }

  void kill_everywhere_in(const std::set<SavePhase>& phases, size_t at_least) {
    ASSERT_FALSE(HasFailure());
    const auto points = find_points(phases);
    ASSERT_GE(points.size(), at_least);
    for (const KillPoint& point : points) {
      kill_at(point);
      if (HasFailure()) return;
    }
    std::cout << "enumerated: " << points.size() << " kills, " << old_
              << " with the old checkpoint, " << newer_ << " with a new one, " << unreached_
              << " not reached, 0 failures\n";
    EXPECT_LE(unreached_, points.size() / 10);
  }

  TemporaryDirectory folder_{quick_folder()};
  const std::string base_ = folder_ / "base";
  uint64_t first_step_ = 0;
  size_t old_ = 0;
  size_t newer_ = 0;
  size_t unreached_ = 0;
};

TEST_F(CrashEnumerationTest, RecoversFromKillAtAnyCallOfNewRun) {
  kill_everywhere_in({SavePhase::kStart, SavePhase::kTensors, SavePhase::kManifest,
                      SavePhase::kSums, SavePhase::kRenamed, SavePhase::kRetention},
                     150);
}

TEST_F(CrashEnumerationTest, RecoversFromKillDuringStartupCleanup) {
  start_with_leftovers();
  kill_everywhere_in({SavePhase::kStart}, 100);
}

TEST_F(CrashEnumerationTest, RecoversFromKillWhileWritingTensors) {
  start_with_leftovers();
  kill_everywhere_in({SavePhase::kTensors}, 20);
}

TEST_F(CrashEnumerationTest, RecoversFromKillBetweenTensorsAndChecksums) {
  start_with_leftovers();
  kill_everywhere_in({SavePhase::kManifest}, 10);
}

TEST_F(CrashEnumerationTest, RecoversFromKillBetweenManifestAndRename) {
  start_with_leftovers();
  kill_everywhere_in({SavePhase::kSums}, 10);
}

TEST_F(CrashEnumerationTest, RecoversFromKillBetweenRenameAndDirectorySync) {
  start_with_leftovers();
  kill_everywhere_in({SavePhase::kRenamed}, 2);
}

TEST_F(CrashEnumerationTest, RecoversFromKillDuringRetentionAndExit) {
  start_with_leftovers();
  kill_everywhere_in({SavePhase::kRetention}, 40);
}

}  // namespace
}  // namespace stoker::test
