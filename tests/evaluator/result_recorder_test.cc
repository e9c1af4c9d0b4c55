#include "evaluator/result_recorder.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "shared/metrics/json_lines.h"
#include "tests/support/python_script.h"
#include "tests/support/temporary_directory.h"

namespace stoker::evaluator {
namespace {

const eval_metrics::MetricTable kRecordedMetrics(
    {{.name = "loss"}, {.name = "accuracy", .direction = eval_metrics::Direction::kMaximize}});
const run::Monitor kAccuracy{"val", "accuracy", eval_metrics::Direction::kMaximize};

class ResultRecorderTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(layout_.eval_dir()); }

  std::unique_ptr<ResultRecorder> open() const {
    auto log = ResultRecorder::open(default_file_system(), layout_, {"val", "loss"},
                                    kRecordedMetrics, true);
    EXPECT_TRUE(log.ok()) << log.status().to_string();
    return *std::move(log);
  }
  static run::EvalResult result(uint64_t step, double loss) {
    run::EvalResult made;
    made.step = step;
    made.manifest_sha256 = "hash-" + std::to_string(step);
    made.datasets = {{"val", 16, {{"loss", loss}, {"accuracy", 0.5}}}};
    made.created = "now";
    return made;
  }
  size_t rows() const { return metrics::read_records(layout_.eval_metrics_file())->records.size(); }

  const test::TemporaryDirectory directory_;
  const run::RunLayout layout_{directory_.path()};
};

TEST_F(ResultRecorderTest, RetainsBestAcrossRestart) {
  {
    const auto log = open();
    ASSERT_TRUE(log->record(result(10, 2.0)).ok());
    ASSERT_TRUE(log->record(result(20, 1.0)).ok());
  }
  const auto log = open();
  ASSERT_TRUE(log->record(result(30, 1.5)).ok());
  EXPECT_EQ(run::read_best(layout_)->step, 20u);
  ASSERT_TRUE(log->record(result(40, 0.5)).ok());
  EXPECT_EQ(run::read_best(layout_)->step, 40u);
}

TEST_F(ResultRecorderTest, RecordsEachEvaluationOfCheckpointOnce) {
  run::EvalResult again = result(10, 1.5);
  again.created = "later";
  {
    const auto log = open();
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(log->record(result(10, 2.0)).ok());
    EXPECT_EQ(rows(), 1u);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(log->record(again).ok());
    EXPECT_EQ(rows(), 2u);
  }
  const auto log = open();
  EXPECT_EQ(rows(), 2u);
  EXPECT_EQ(log->best()->value, 1.5);
}

TEST_F(ResultRecorderTest, ChoosesBestByMonitor) {
  auto log =
      *ResultRecorder::open(default_file_system(), layout_, kAccuracy, kRecordedMetrics, false);
  run::EvalResult good = result(10, 1.0);
  ASSERT_TRUE(log->record(good).ok());
  run::EvalResult better = result(20, 3.0);
  better.datasets[0].metrics[1].second = 0.75;
  ASSERT_TRUE(log->record(better).ok());
  EXPECT_EQ(run::read_best(layout_)->step, 20u);
  EXPECT_EQ(run::read_best(layout_)->metric, "accuracy");
}

TEST_F(ResultRecorderTest, RejectsMonitorMissingFromResults) {
  auto log = *ResultRecorder::open(default_file_system(), layout_, {"val", "bleu"},
                                   kRecordedMetrics, false);
  EXPECT_EQ(log->record(result(10, 1.0)).code(), StatusCode::kInvalidArgument);
}

TEST_F(ResultRecorderTest, RestoresHistoryAndUsesLaterResultOfStep) {
  {
    const auto log = open();
    ASSERT_TRUE(log->record(result(10, 2.0)).ok());
    ASSERT_TRUE(log->record(result(30, 1.0)).ok());
    ASSERT_TRUE(log->record(result(20, 1.5)).ok());
  }
  const auto log = open();
  run::EvalResult repeated = result(20, 1.25);
  repeated.manifest_sha256 = "another";
  ASSERT_TRUE(log->record(repeated).ok());
  const auto upto_20 = log->history(20);
  ASSERT_EQ(upto_20.size(), 2u);
  EXPECT_EQ(upto_20[1].value, 1.25);
  EXPECT_EQ(log->history(1000).size(), 3u);
}

TEST_F(ResultRecorderTest, WritesRepeatedResultOnce) {
  {
    const auto log = open();
    ASSERT_TRUE(log->record(result(10, 2.0)).ok());
    ASSERT_TRUE(log->record(result(10, 2.0)).ok());
  }
  const auto log = open();
  ASSERT_TRUE(log->record(result(10, 2.0)).ok());
  EXPECT_EQ(rows(), 1u);
}

TEST_F(ResultRecorderTest, WritesTensorBoardRunPerDataset) {
  const auto log = open();
  auto made = result(10, 2.0);
  made.datasets.push_back({"other", 16, {{"loss", 3.0}}});
  ASSERT_TRUE(log->record(made).ok());
  for (const std::string dataset : {"val", "other"}) {
    const auto files = list_directory(layout_.tensorboard_dir() + "/eval/" + dataset);
    ASSERT_TRUE(files.ok()) << files.status().to_string();
    ASSERT_EQ(files->size(), 1u);
    const auto bytes =
        read_file(layout_.tensorboard_dir() + "/eval/" + dataset + "/" + files->front(), 1 << 20);
    EXPECT_NE(bytes->find("loss"), std::string::npos);
  }
}

TEST_F(ResultRecorderTest, IgnoresInfiniteValueForBestAcrossRestart) {
  ASSERT_TRUE(open()->record(result(10, std::numeric_limits<double>::infinity())).ok());
  const auto log = open();
  EXPECT_FALSE(log->best().has_value());
  ASSERT_TRUE(log->record(result(20, 3.0)).ok());
  EXPECT_EQ(log->best()->step, 20u);
}

TEST_F(ResultRecorderTest, IgnoresResultOfAnotherCheckpointWithSameStep) {
  const auto log = open();
  ASSERT_TRUE(log->record(result(10, 2.0)).ok());
  EXPECT_TRUE(log->find_recorded(10, "hash-10").has_value());
  EXPECT_FALSE(log->find_recorded(10, "hash of another run").has_value());
  EXPECT_FALSE(log->find_recorded(11, "hash-11").has_value());
}

TEST_F(ResultRecorderTest, IgnoresNanForBest) {
  const auto log = open();
  ASSERT_TRUE(log->record(result(10, std::numeric_limits<double>::quiet_NaN())).ok());
  EXPECT_FALSE(log->best().has_value());
  ASSERT_TRUE(log->record(result(20, 3.0)).ok());
  EXPECT_EQ(log->best()->step, 20u);
}

// A run that goes back from step 30 to step 10, and is saved at other steps then.
class BranchTest : public ResultRecorderTest {
 protected:
  static run::CheckpointId id(const run::EvalResult& of) { return {of.step, of.manifest_sha256}; }
  static run::EvalResult other_branch(uint64_t step, double loss) {
    run::EvalResult made = result(step, loss);
    made.manifest_sha256 = "other-" + std::to_string(step);
    return made;
  }
  void save(const run::EvalResult& of) {
    const auto last = run::read_lineage(layout_.lineage_file())->newest();
    run::SavedCheckpoint saved{.id = id(of), .parent_step = {}};
    if (last) saved.parent_step = last->step;
    ASSERT_TRUE(run::add_saved(files_, layout_.lineage_file(), {saved}).ok());
  }
  void resume(const run::EvalResult& of) {
    ASSERT_TRUE(run::add_resumed(files_, layout_.lineage_file(), id(of)).ok());
  }
  void save_and_record(ResultRecorder& log, const run::EvalResult& of) {
    save(of);
    ASSERT_TRUE(log.update_lineage().ok());
    ASSERT_TRUE(log.record(of).ok());
  }
  void record_first_branch(ResultRecorder& log) {
    for (const auto& [step, loss] : {std::pair(10, 3.0), {20, 2.0}, {30, 1.0}})
      save_and_record(log, result(step, loss));
  }

  FileSystem& files_ = default_file_system();
};

TEST_F(BranchTest, ForgetsResultsOfFormerBranch) {
  const auto log = open();
  record_first_branch(*log);
  EXPECT_EQ(log->best()->step, 30u);
  EXPECT_FALSE(*log->update_lineage());
  resume(result(10, 3.0));
  EXPECT_TRUE(*log->update_lineage());
  EXPECT_EQ(run::read_best(layout_)->step, 10u);
  EXPECT_EQ(log->history(1000).size(), 1u);
  save_and_record(*log, other_branch(25, 2.5));
  EXPECT_EQ(run::read_best(layout_)->step, 25u);
  EXPECT_EQ(run::read_best(layout_)->history.size(), 2u);
  EXPECT_EQ(rows(), 4u) << "eval.jsonl has all results";
}

TEST_F(BranchTest, ForgetsResultsOfFormerBranchAfterRestart) {
  record_first_branch(*open());
  resume(result(10, 3.0));
  const auto log = open();
  EXPECT_EQ(run::read_best(layout_)->step, 10u);
  EXPECT_EQ(run::read_best(layout_)->metrics.at("val/loss").step, 10u);
  // Its evaluation took longer than the run was on its branch.
  run::EvalResult late = result(30, 0.5);
  late.created = "later";
  ASSERT_TRUE(log->record(late).ok());
  EXPECT_EQ(log->best()->step, 10u);
}

// The files of the run before are still there.
TEST_F(BranchTest, ForgetsResultsOfRunThatStartedOver) {
  const auto log = open();
  record_first_branch(*log);
  ASSERT_TRUE(run::add_started(files_, layout_.lineage_file()).ok());
  EXPECT_TRUE(*log->update_lineage());
  EXPECT_TRUE(log->history(1000).empty());
  EXPECT_EQ(run::read_best(layout_).status().code(), StatusCode::kNotFound);
  // Its line follows.
  ASSERT_TRUE(log->record(other_branch(10, 5.0)).ok());
  EXPECT_EQ(run::read_best(layout_).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(log->best()->manifest_sha256, "other-10");
  EXPECT_EQ(log->history(1000).size(), 1u);
  save(other_branch(10, 5.0));
  EXPECT_EQ(run::read_best(layout_)->manifest_sha256, "other-10");
}

TEST_F(BranchTest, RemovesBestOfFormerBranchWithoutResultOfPresentOne) {
  const auto log = open();
  save(result(10, 3.0));
  save_and_record(*log, result(20, 2.0));
  resume(result(10, 3.0));
  EXPECT_TRUE(*log->update_lineage());
  EXPECT_FALSE(std::filesystem::exists(layout_.best_file()));
}

TEST_F(BranchTest, ReturnsToArchivedBranch) {
  const auto log = open();
  record_first_branch(*log);
  resume(result(10, 3.0));
  save_and_record(*log, other_branch(20, 2.5));
  resume(result(20, 2.0));
  EXPECT_TRUE(*log->update_lineage());
  EXPECT_EQ(log->best()->manifest_sha256, "hash-20");
  EXPECT_EQ(log->history(1000).size(), 2u);
}

// As TensorBoard reads it.
TEST_F(BranchTest, LeavesOnePointPerStepInTensorBoard) {
  {
    const auto log = open();
    record_first_branch(*log);
    resume(result(10, 3.0));
    for (const auto& [step, loss] : {std::pair(15, 2.75), {20, 2.5}, {40, 2.25}})
      save_and_record(*log, other_branch(step, loss));
  }
  const auto read_losses = [&]() -> std::optional<std::string> {
    const auto read =
        test::try_run_python(STOKER_READ_EVENTS, {layout_.tensorboard_dir() + "/eval/val"});
    if (!read) return std::nullopt;
    EXPECT_EQ(read->code, 0) << read->err;
    const size_t begin = read->out.find(R"("page_scalars")");
    const size_t loss = read->out.find(R"("loss": )", begin);
    return read->out.substr(loss, read->out.find("]]", loss) + 2 - loss);
  };
  const auto losses = read_losses();
  if (!losses) GTEST_SKIP() << "no tensorboard";
  EXPECT_EQ(*losses, R"("loss": [[10, 3.0], [15, 2.75], [20, 2.5], [40, 2.25]])");
  resume(result(20, 2.0));  // back to the first branch
  save_and_record(*open(), result(50, 0.5));
  EXPECT_EQ(*read_losses(), R"("loss": [[10, 3.0], [20, 2.0], [50, 0.5]])");
}

}  // namespace
}  // namespace stoker::evaluator
