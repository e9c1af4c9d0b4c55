// SIGKILL of one of two ranks before each system call that changes the run directory, and in the middle of each
// write, while they save checkpoints with a sharded optimizer state. Then both are killed, as a launcher does,
// and start again.
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "shared/run/run_layout.h"
#include "tests/reliability/minimal_run_check.h"
#include "tests/support/temporary_directory.h"

namespace stoker::test {
namespace {

constexpr uint64_t kLastStep = 10;

class ShardedCrashTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = untraceable_reason()) GTEST_SKIP() << *why;
  }

  // Runs both ranks, that with this number traced, until it ends.
  static TraceEnd run(const std::string& scene, int traced,
                      const std::function<Verdict(const FileCall&)>& check) {
    const std::string run = scene + "/run";
    const TemporaryDirectory messages(quick_folder());
    std::filesystem::create_directories(run::RunLayout(run).checkpoints_dir());
    const auto command = [&](int rank) {
      return std::vector<std::string>{STOKER_MINIMAL_SHARDS, run, messages.path(),
                                      std::to_string(rank)};
    };
    auto staying = command(1 - traced);
    staying.emplace_back("stay");
    const BackgroundRun other(staying, scene + "/output");
    const TraceEnd end = trace(command(traced), scene + "/output", run, check);
    if (end.code != 0) ADD_FAILURE() << std::ifstream(scene + "/output").rdbuf();
    return end;
  }

  static std::vector<KillPoint> find_points(int rank) {
    const TemporaryDirectory scene(quick_folder());
    std::vector<KillPoint> points;
    const TraceEnd end = run(scene.path(), rank, [&](const FileCall& call) {
      if (call.changes) add_kill_points(call, points);
      return Verdict::kContinue;
    });
    EXPECT_EQ(end.code, 0);
    return points;
  }

  void kill_at(int rank, const KillPoint& point) {
    const TemporaryDirectory scene(quick_folder());
    std::string location = "not reached";
    const TraceEnd end = run(scene.path(), rank, [&](const FileCall& call) {
      return verdict_at(call, point, location);
    });
    SCOPED_TRACE(location);
    EXPECT_NE(end.signal, 0);
    const std::string run_dir = scene / "run";
    ++visible_.at(newest_visible(run_dir) / 5);
    EXPECT_TRUE(all_checkpoints_valid(run_dir, newest_saved(scene / "output")));
    const TraceEnd again = run(scene.path(), 0, [](const FileCall&) { return Verdict::kContinue; });
    EXPECT_EQ(again.code, 0);
    EXPECT_TRUE(all_checkpoints_valid(run_dir, kLastStep));
    EXPECT_EQ(find_leftovers(run_dir), "");
  }

  void kill_everywhere(int rank, size_t at_least) {
    const auto points = find_points(rank);
    ASSERT_GE(points.size(), at_least);
    for (const KillPoint& point : points) {
      kill_at(rank, point);
      if (HasFailure()) return;
    }
    std::cout << "enumerated: " << points.size() << " kills of rank " << rank << ", " << visible_[0]
              << " before the first checkpoint, " << visible_[1] << " before the second one, "
              << visible_[2] << " after it, 0 failures\n";
  }

  std::array<size_t, 3> visible_{};
};

TEST_F(ShardedCrashTest, RecoversFromKillOfChiefAtAnyCall) { kill_everywhere(0, 40); }

TEST_F(ShardedCrashTest, RecoversFromKillOfOtherRankAtAnyCall) { kill_everywhere(1, 8); }

}  // namespace
}  // namespace stoker::test
