// Kills the evaluator, or fails its disk, at every file operation and checks the next start.
#include <filesystem>
#include <fstream>
#include <set>

#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "tests/evaluator/loop_fixture.h"

namespace stoker::evaluator {
namespace {

using Extent = test::Fault::Extent;
namespace fs = std::filesystem;

class ResultRecordingFaultTest : public EvaluationLoopBaseTest {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kError);  // the tests start thousands of evaluators
    for (const uint64_t step : {10, 30}) commit(step);
    faulty_files_ = std::make_unique<test::FaultyFiles>(scratch_.path());
  }

  void TearDown() override { set_log_level(LogLevel::kInfo); }

  // Restores the run directory to its state before any evaluation.
  void reset() {
    for (const std::string& folder :
         {layout_.eval_dir(), layout_.metrics_dir(), layout_.tensorboard_dir()})
      fs::remove_all(folder);
    clock_.advance(std::chrono::hours(1));
  }

  // One run of the evaluator, in which `fault` happens at file operation `operation`.
  void run_loop(uint64_t operation, const test::Fault& fault) {
    test::FaultyFiles files(scratch_.path());
    files.fail_at(operation, fault);
    const auto loop = open(files);
    if (loop) (void)loop->evaluate_due({}, {});
    operations_ = files.operations().size();
  }

  // An undisturbed start, which evaluates until no retry is pending.
  void recover() {
    const auto loop = open(*faulty_files_);
    ASSERT_NE(loop, nullptr);
    for (int i = 0; i < 4; ++i) {
      clock_.advance(std::chrono::hours(1));
      const auto loop_result = loop->evaluate_due({}, {});
      ASSERT_TRUE(loop_result.ok()) << loop_result.status().to_string();
      if (!loop_result->maybe_due_at) return;
    }
  }

  // Checks that no result is lost, duplicated or attributed to another checkpoint.
  void expect_recorded_once(const std::string& when) {
    std::set<std::string> manifests;
    for (const uint64_t step : {10, 30}) {
      const auto manifest = read_file(path_of(step) + "/manifest.json", 1 << 20);
      const std::string sha256 = sha256_hex(*manifest);
      manifests.insert(sha256);
      const std::string path = run::eval_result_path(layout_.eval_dir(), step);
      const auto text = read_file(path, 1 << 20);
      ASSERT_TRUE(text.ok()) << when << ": " << text.status().to_string();
      const auto result = run::parse_eval_result(*text, path);
      ASSERT_TRUE(result.ok()) << when << ": " << result.status().to_string();
      EXPECT_EQ(result->manifest_sha256, sha256) << when;
      EXPECT_TRUE(!killed_ || read_artifacts(layout_, step, "val").size() == 1) << when;
    }
    std::multiset<std::string> rows, lines;
    for (const metrics::MetricsRecord& row : read_records(layout_.eval_metrics_file()))
      rows.insert(*row.find_text("manifest_sha256") + *row.find_text("dataset"));
    for (const metrics::MetricsRecord& row : read_records(layout_.evaluation_outcomes_file())) {
      lines.insert(*row.find_text("manifest_sha256"));
      EXPECT_EQ(*row.find_text("outcome"), "evaluated") << when;
    }
    std::multiset<std::string> due_rows;
    for (const std::string& sha256 : manifests)
      for (const char* const dataset : {"val", "other"}) due_rows.insert(sha256 + dataset);
    EXPECT_EQ(rows, due_rows) << when;
    EXPECT_EQ(lines, (std::multiset<std::string>{manifests.begin(), manifests.end()})) << when;
    const auto best = run::read_best(layout_);
    ASSERT_TRUE(best.ok()) << when;
    EXPECT_EQ(best->step, 30u) << when;
    EXPECT_TRUE(!killed_ || best->history.size() == 2) << when;
    for (const std::string& name : *list_directory(layout_.eval_dir()))
      EXPECT_FALSE(name.starts_with(".")) << when << ": " << name << " was left";
  }
  static std::vector<metrics::MetricsRecord> read_records(const std::string& file) {
    auto read = metrics::read_records(file);
    EXPECT_TRUE(read.ok()) << read.status().to_string();
    return read.ok() ? std::move(read->records) : std::vector<metrics::MetricsRecord>{};
  }

  uint64_t operations_ = 0;  // in the last run of the evaluator
  // False: the disk fails once, which can lose an artifact and delay a step until its second
  // attempt.
  bool killed_ = true;
  std::unique_ptr<test::FaultyFiles> faulty_files_;
};

TEST_F(ResultRecordingFaultTest, RecordsEachResultOnceWhenKilledAtAnyOperation) {
  reset();
  run_loop(0, {});
  const uint64_t all = operations_;
  expect_recorded_once("without a fault");
  ASSERT_GT(all, 40u);
  for (uint64_t operation = 1; operation <= all; ++operation) {
    for (const Extent extent : {Extent::kNothing, Extent::kHalf}) {
      reset();
      run_loop(operation, {.error = EIO, .extent = extent, .from_here_on = true});
      ASSERT_NO_FATAL_FAILURE(recover());
      expect_recorded_once("killed at operation " + std::to_string(operation) + " of " +
                           std::to_string(all) + ", extent " +
                           std::to_string(static_cast<int>(extent)));
      if (HasFailure()) return;
    }
  }
}

TEST_F(ResultRecordingFaultTest, RecordsEachResultOnceWhenKilledTwice) {
  reset();
  run_loop(0, {});
  const uint64_t all = operations_;
  for (uint64_t first = 1; first <= all; first += 11) {
    for (uint64_t second = 1; second <= all; second += 13) {
      reset();
      run_loop(first, {.error = EIO, .extent = Extent::kHalf, .from_here_on = true});
      run_loop(second, {.error = EIO, .extent = Extent::kHalf, .from_here_on = true});
      ASSERT_NO_FATAL_FAILURE(recover());
      expect_recorded_once("killed at " + std::to_string(first) + ", then at " +
                           std::to_string(second));
      if (HasFailure()) return;
    }
  }
}

TEST_F(ResultRecordingFaultTest, RetriesAfterDiskErrorAtAnyOperation) {
  killed_ = false;
  reset();
  run_loop(0, {});
  const uint64_t all = operations_;
  for (uint64_t operation = 1; operation <= all; ++operation) {
    for (const int error : {EIO, ENOSPC}) {
      reset();
      run_loop(operation, {.error = error, .extent = Extent::kHalf, .from_here_on = false});
      ASSERT_NO_FATAL_FAILURE(recover());
      expect_recorded_once("error " + std::to_string(error) + " at operation " +
                           std::to_string(operation));
      if (HasFailure()) return;
    }
  }
}

TEST_F(ResultRecordingFaultTest, RebuildsMissingOrCorruptBestFileWithHistory) {
  reset();
  run_loop(0, {});
  const auto best = run::read_best(layout_);
  for (const char* const damage : {"", "{", "{\"dataset\":1}", "null"}) {
    std::ofstream(layout_.best_file()) << damage;
    ASSERT_NE(open(*faulty_files_), nullptr);
    EXPECT_EQ(*run::read_best(layout_), *best) << damage;
  }
  fs::remove(layout_.best_file());
  ASSERT_NE(open(*faulty_files_), nullptr);
  EXPECT_EQ(*run::read_best(layout_), *best);
}

// Everything that was written but not synced is lost, completely or in part.
TEST_F(ResultRecordingFaultTest, DuplicatesNoResultAfterPowerCut) {
  reset();
  test::FaultyFiles files(scratch_.path());
  {
    const auto loop = open(files);
    ASSERT_NE(loop, nullptr);
    ASSERT_TRUE(loop->evaluate_due({}, {}).ok());
  }
  const uint64_t all = files.operations().size();
  for (uint64_t operation = 1; operation <= all; operation += 3) {
    for (const test::Survival survival :
         {test::Survival::kNothing, test::Survival::kNamesOnly, test::Survival::kSome}) {
      const std::string after = scratch_ / "after";
      files.simulate_power_loss(operation, survival, operation, after);
      fs::remove_all(layout_.root());
      fs::rename(after + "/run", layout_.root());
      fs::remove_all(after);
      ASSERT_NO_FATAL_FAILURE(recover());
      expect_recorded_once("power cut after operation " + std::to_string(operation));
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace stoker::evaluator
