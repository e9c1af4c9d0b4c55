#include "evaluator/result_recorder.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "shared/metrics/json_lines.h"
#include "tests/support/temporary_directory.h"

namespace stoker::evaluator {
namespace {

class ResultRecorderTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(layout_.eval_dir()); }

  std::unique_ptr<ResultRecorder> open() const {
    auto log = ResultRecorder::open(default_file_system(), layout_, {"val", "loss"}, true);
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
  EXPECT_EQ(run::read_best(layout_.best_file())->step, 20u);
  ASSERT_TRUE(log->record(result(40, 0.5)).ok());
  EXPECT_EQ(run::read_best(layout_.best_file())->step, 40u);
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
  auto log = *ResultRecorder::open(default_file_system(), layout_, {"val", "accuracy"}, false);
  run::EvalResult good = result(10, 1.0);
  ASSERT_TRUE(log->record(good).ok());
  run::EvalResult better = result(20, 3.0);
  better.datasets[0].metrics[1].second = 0.75;
  ASSERT_TRUE(log->record(better).ok());
  EXPECT_EQ(run::read_best(layout_.best_file())->step, 20u);
  EXPECT_EQ(run::read_best(layout_.best_file())->metric, "accuracy");
}

TEST_F(ResultRecorderTest, RejectsMonitorMissingFromResults) {
  auto log = *ResultRecorder::open(default_file_system(), layout_, {"val", "bleu"}, false);
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

}  // namespace
}  // namespace stoker::evaluator
