#include "shared/run/lineage.h"

#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "shared/run/eval_result.h"
#include "tests/support/temporary_directory.h"

namespace stoker::run {
namespace {

class LineageTest : public ::testing::Test {
 protected:
  static CheckpointId id(uint64_t step, const std::string& branch) {
    return {step, branch + std::to_string(step)};
  }
  // As stokerd: after the checkpoint that was saved or resumed from before.
  void save(uint64_t step, const std::string& branch) {
    ASSERT_TRUE(
        add_saved(default_file_system(), path_, {{.id = id(step, branch), .parent_step = last_}})
            .ok());
    last_ = step;
  }
  // The line is not written.
  void lose(uint64_t step) { last_ = step; }
  void start() {
    ASSERT_TRUE(add_started(default_file_system(), path_).ok());
    last_.reset();
  }
  void resume(uint64_t step, const std::string& branch) {
    ASSERT_TRUE(add_resumed(default_file_system(), path_, id(step, branch)).ok());
    last_ = step;
  }
  bool contains(uint64_t step, const std::string& branch) const {
    return read_lineage(path_)->contains(step, id(step, branch).manifest_sha256);
  }
  std::string text() const { return *read_file(path_, 1 << 20); }
  void append(const std::string& text) const {
    ASSERT_TRUE(write_file_atomically(default_file_system(), path_, this->text() + text).ok());
  }

  test::TemporaryDirectory directory_;
  const std::string path_ = directory_ / "lineage.jsonl";
  std::optional<uint64_t> last_;
};

TEST_F(LineageTest, ContainsAllWithoutFile) {
  EXPECT_FALSE(read_lineage(path_)->newest().has_value());
  EXPECT_TRUE(contains(10, "a"));
}

TEST_F(LineageTest, FollowsRunToBranchOfEarlierCheckpoint) {
  for (const uint64_t step : {10, 20, 30}) save(step, "a");
  EXPECT_TRUE(contains(30, "a"));
  resume(10, "a");
  EXPECT_TRUE(contains(10, "a"));
  EXPECT_FALSE(contains(20, "a"));
  EXPECT_FALSE(contains(30, "a"));
  save(20, "b");
  save(40, "b");
  EXPECT_TRUE(contains(10, "a"));
  EXPECT_TRUE(contains(20, "b"));
  EXPECT_FALSE(contains(20, "a"));
  // And back to an archived one.
  resume(20, "a");
  save(30, "c");
  EXPECT_TRUE(contains(20, "a"));
  EXPECT_FALSE(contains(20, "b"));
  EXPECT_FALSE(contains(40, "b"));
  EXPECT_EQ(*read_lineage(path_)->newest(), id(30, "c"));
}

TEST_F(LineageTest, KeepsBranchOnResumeFromNewestCheckpoint) {
  start();
  save(10, "a");
  const std::string before = text();
  resume(10, "a");
  EXPECT_EQ(text(), before);
  save(20, "a");
  EXPECT_TRUE(contains(10, "a"));
}

TEST_F(LineageTest, LeavesOwnCheckpointsOnResumeFromAnotherRun) {
  save(10, "own");
  resume(50, "other");
  save(60, "own");
  EXPECT_FALSE(contains(10, "own"));
  EXPECT_TRUE(contains(50, "other"));
  EXPECT_TRUE(contains(60, "own"));
}

TEST_F(LineageTest, ContainsCheckpointWhoseLineIsNotWrittenYet) {
  save(10, "a");
  EXPECT_TRUE(contains(20, "a"));
}

TEST_F(LineageTest, ContinuesAfterLineThatACrashHasCut) {
  save(10, "a");
  append(R"({"event":"saved","step":2)");
  save(30, "a");
  EXPECT_TRUE(contains(10, "a"));
  EXPECT_EQ(*read_lineage(path_)->newest(), id(30, "a"));
  resume(10, "a");
  EXPECT_FALSE(contains(30, "a"));
}

// Without what the file says, they would be ancestors.
TEST_F(LineageTest, LeavesCheckpointsOfRunThatStartedOver) {
  start();
  start();  // before the first checkpoint
  EXPECT_EQ(text(), "{\"event\":\"started\"}\n");
  save(10, "a");
  lose(20);
  start();
  for (const uint64_t step : {10, 20}) EXPECT_FALSE(contains(step, "a")) << step;
  EXPECT_FALSE(read_lineage(path_)->newest().has_value());
  save(20, "b");
  EXPECT_TRUE(contains(20, "b"));
  EXPECT_FALSE(contains(10, "a"));
}

TEST_F(LineageTest, FindsResumeWhoseLineIsLost) {
  for (const uint64_t step : {10, 20, 30}) save(step, "a");
  lose(10);  // resumed from
  save(40, "b");
  EXPECT_TRUE(contains(10, "a"));
  EXPECT_FALSE(contains(20, "a"));
  EXPECT_FALSE(contains(30, "a"));
  EXPECT_TRUE(contains(40, "b"));
  last_.reset();  // and a start
  save(5, "c");
  EXPECT_FALSE(contains(10, "a"));
  EXPECT_FALSE(contains(40, "b"));
  EXPECT_TRUE(contains(5, "c"));
}

TEST_F(LineageTest, KeepsAncestorsOfCheckpointWhoseLineIsLost) {
  save(10, "a");
  lose(20);
  save(30, "a");
  for (const uint64_t step : {10, 20, 30}) EXPECT_TRUE(contains(step, "a")) << step;
  resume(10, "a");
  EXPECT_TRUE(contains(10, "a"));
  for (const uint64_t step : {20, 30}) EXPECT_FALSE(contains(step, "a")) << step;
}

// That of a release that wrote none, or a lost one. Branch a went on to step 60, before a resume from step 10.
TEST_F(LineageTest, LeavesUnknownCheckpointsAfterResumeWithoutFile) {
  lose(20);
  save(30, "b");  // completed by the start
  resume(30, "b");
  EXPECT_TRUE(contains(10, "a"));
  EXPECT_TRUE(contains(20, "b"));
  EXPECT_FALSE(contains(30, "a")) << "an ancestor has its step";
  EXPECT_FALSE(contains(60, "a"));
  save(40, "b");
  EXPECT_TRUE(contains(40, "b"));
  EXPECT_FALSE(contains(60, "a"));
}

TEST_F(LineageTest, ContainsFoundCheckpointUntilItsLineIsRead) {
  start();
  save(10, "a");
  Lineage lineage = *read_lineage(path_);
  EXPECT_FALSE(lineage.contains(20, id(20, "a").manifest_sha256));
  lineage.add_found(id(20, "a"));
  EXPECT_TRUE(lineage.contains(20, id(20, "a").manifest_sha256));
  save(30, "b");
  resume(10, "a");
  lineage = *read_lineage(path_);
  lineage.add_found(id(30, "b"));
  EXPECT_FALSE(lineage.contains(30, id(30, "b").manifest_sha256)) << "its line says more";
}

TEST_F(LineageTest, ReturnsBestOfHistoryOnPresentBranch) {
  const RunLayout layout(directory_.path());
  ASSERT_TRUE(make_directories(default_file_system(), layout.eval_dir()).ok());
  for (const uint64_t step : {10, 20, 30}) save(step, "a");
  const auto value = [](double loss, uint64_t step) {
    return BestValue{.value = loss, .step = step, .manifest_sha256 = "a" + std::to_string(step)};
  };
  const BestCheckpoint best{.dataset = "val",
                            .metric = "loss",
                            .value = 1,
                            .step = 30,
                            .manifest_sha256 = "a30",
                            .history = {value(3, 10), value(2, 20), value(1, 30)},
                            .metrics = {{"val/loss", value(1, 30)}, {"val/mae", value(4, 20)}}};
  ASSERT_TRUE(write_file_atomically(default_file_system(), layout.best_file(), to_json(best)).ok());
  EXPECT_EQ(*read_best(layout), best);
  resume(20, "a");
  const auto present = read_best(layout);
  ASSERT_TRUE(present.ok()) << present.status().to_string();
  EXPECT_EQ(present->value, 2);
  EXPECT_EQ(present->step, 20u);
  EXPECT_EQ(present->manifest_sha256, "a20");
  EXPECT_EQ(present->history.size(), 2u);
  EXPECT_EQ(present->metrics, (std::map<std::string, BestValue>{{"val/mae", value(4, 20)}}));
  start();
  EXPECT_EQ(read_best(layout).status().code(), StatusCode::kNotFound);
}

TEST_F(LineageTest, HidesBestResultOfFormerBranch) {
  const RunLayout layout(directory_.path());
  ASSERT_TRUE(make_directories(default_file_system(), layout.eval_dir()).ok());
  save(10, "a");
  save(20, "a");
  const BestCheckpoint best{
      .dataset = "val", .metric = "loss", .value = 1, .step = 20, .manifest_sha256 = "a20"};
  ASSERT_TRUE(write_file_atomically(default_file_system(), layout.best_file(), to_json(best)).ok());
  for (const uint64_t step : {10, 20}) {
    const EvalResult result{.step = step, .manifest_sha256 = "a" + std::to_string(step)};
    ASSERT_TRUE(write_eval_result(default_file_system(), layout.eval_dir(), result).ok());
  }
  EXPECT_EQ(read_best(layout)->step, 20u);
  EXPECT_EQ(newest_evaluated_step(layout), 20u);
  resume(10, "a");
  EXPECT_EQ(read_best(layout).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(newest_evaluated_step(layout), 10u);
}

}  // namespace
}  // namespace stoker::run
