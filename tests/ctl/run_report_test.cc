#include "ctl/run_report.h"

#include <fstream>
#include <iterator>
#include <limits>

#include "shared/base/file.h"
#include "shared/run/setting_changes.h"
#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using RunReportTest = CtlTest;

TEST_F(RunReportTest, ShowsLossesBestAndEndState) {
  write_train_metrics(100);
  for (uint64_t step = 100; step <= 1000; step += 100) write_eval(step, step == 700 ? 1.0625 : 2.0);
  write_exit_status(run::RunOutcome::kFinished, 1000);
  const CommandResult result = ctl({"report"});
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* text :
       {"valid loss", "bits/byte", "samples/s", "data wait", "(ms/step)", "checkpoint",
        "stall (ms)", "1.063", "1 230", "best valid loss 1.063 at step 700\n",
        "16 000 samples in 13 s of training, epoch 10\n", "finished    step 1 000",
        "reason      all steps are done\n", "o valid loss", "1 000 steps\n"})
    EXPECT_THAT(result.out, HasSubstr(text));
  EXPECT_LE(widest_line(result.out), 80u) << result.out;
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
}

TEST_F(RunReportTest, NamesLargestValueOfMetricThatIsMaximized) {
  write_train_metrics(10);
  for (const auto& [step, auroc] :
       {std::pair<uint64_t, double>{10, 0.5}, {20, 0.875}, {30, 0.75}}) {
    const run::EvalResult result{.step = step,
                                 .manifest_sha256 = "",
                                 .datasets = {{.dataset = "valid",
                                               .samples = 8,
                                               .metrics = {{"loss", 1}, {"auroc", auroc}}}},
                                 .seconds = 1,
                                 .created = "2026-01-31T12:00:00.000Z"};
    ASSERT_TRUE(run::write_eval_result(default_file_system(), layout().eval_dir(), result).ok());
  }
  write_file(layout().best_file(), run::to_json(run::BestCheckpoint{.dataset = "valid",
                                                                    .metric = "auroc",
                                                                    .value = 0.875,
                                                                    .step = 20,
                                                                    .manifest_sha256 = "m"}));
  EXPECT_THAT(ctl({"report"}).out,
              HasSubstr("best        valid/auroc 0.8750 (maximize) at step 20\n"));
  std::filesystem::remove(layout().metric_table_file());
  EXPECT_THAT(ctl({"report"}).out, HasSubstr("best        valid/auroc 0.8750 at step 20\n"));
  std::filesystem::remove(layout().best_file());
  EXPECT_THAT(ctl({"report"}).out, HasSubstr("best valid loss: not known, because "));
}

TEST_F(RunReportTest, FitsTerminalWidth) {
  write_train_metrics(100);
  write_eval(1000, 2);
  const CommandResult result = ctl({"report"}, kTerminal);
  EXPECT_THAT(result.out, HasSubstr("\x1b[1m"));
  EXPECT_THAT(result.out, HasSubstr("●"));
  EXPECT_LE(widest_line(result.out), 80u) << result.out;
}

TEST_F(RunReportTest, SumsStallsAndAveragesWaits) {
  std::vector<metrics::TrainMetrics> rows;
  for (uint64_t i = 1; i <= 1000; ++i) {
    rows.push_back(make_train_metrics(i, 1));
    rows.back().data_wait_ms = i % 2 == 0 ? 4 : 0;
  }
  write_train_metrics(rows);
  const CommandResult result = ctl({"report"});
  // A table row covers a hundred steps: 100 stalls of 1.5 ms and a mean wait of 2 ms.
  EXPECT_THAT(result.out, HasSubstr("1 230       2.00         150\n")) << result.out;
}

TEST_F(RunReportTest, AssignsEvaluationToNextReportedStep) {
  write_train_metrics(3);  // 10 20 30
  write_eval(15, 2.2222);
  write_eval(33, 3.3333);  // the last checkpoint, after the last reported step
  const CommandResult result = ctl({"report"});
  EXPECT_THAT(result.out, ::testing::ContainsRegex(" 10 .* -  .*\n"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex(" 20 .* 2\\.222 .*\n"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex(" 30 .* 3\\.333 .*\n"));
}

TEST_F(RunReportTest, SuggestsEvaluatorWithoutEvaluations) {
  write_train_metrics(1);
  const CommandResult result = ctl({"report"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("no validation yet: stoker-eval --run-dir "));
  EXPECT_THAT(result.out, HasSubstr("not started step 10"));
  write_file(layout().eval_lock_file(), "");
  const auto evaluator = lock_file(layout().eval_lock_file(), "");
  ASSERT_TRUE(evaluator.ok()) << evaluator.status().to_string();
  EXPECT_THAT(
      ctl({"report"}).out,
      HasSubstr("no validation yet: the evaluator runs, and has not evaluated a checkpoint"));
}

TEST_F(RunReportTest, ShowsNanLosses) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  write_train_metrics({make_train_metrics(10, nan), make_train_metrics(20, nan)});
  write_eval(20, nan);
  const CommandResult report = ctl({"report"});
  ASSERT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(report.out, HasSubstr("NaN"));
  EXPECT_THAT(report.out, HasSubstr("best valid loss: no finite value\n"));
  EXPECT_THAT(report.out, HasSubstr("no plot: "));
  const CommandResult plot = ctl({"plot"});
  EXPECT_EQ(plot.code, 74);
  EXPECT_THAT(plot.err, HasSubstr("train.jsonl has no finite loss"));
}

TEST_F(RunReportTest, ReportsMissingMetricsBeforeFirstRecord) {
  for (const char* command : {"report", "plot"}) {
    const CommandResult result = ctl({command});
    EXPECT_EQ(result.code, 78);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("no step has been reported yet"));
  }
}

TEST_F(RunReportTest, CondensesThousandsOfRecordsToTen) {
  write_train_metrics(20'000);
  const CommandResult result = ctl({"report"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 3 + 10 + 1 + 9 + 1 + 13)
      << result.out;
  EXPECT_THAT(result.out, HasSubstr("  200 000 "));
}

TEST_F(RunReportTest, KeepsFewMetricsOfRecordAndNoResultWithVeryMany) {
  metrics::TrainMetrics row = make_train_metrics(10, 1);
  for (int i = 0; i < 1000; ++i) row.metrics.emplace_back("metric" + std::to_string(i), 0.5);
  write_file(layout().train_metrics_file(), to_json(to_record(row)) + "\n");
  write_eval(10, 1.5);
  run::EvalResult large{.step = 20,
                        .manifest_sha256 = "",
                        .datasets = {{.dataset = "valid", .samples = 5, .metrics = row.metrics}},
                        .created = "2026-01-31T12:00:00.000Z"};
  for (int i = 1000; i < 10'000; ++i)
    large.datasets.front().metrics.emplace_back("metric" + std::to_string(i), 0.5);
  ASSERT_TRUE(run::write_eval_result(default_file_system(), layout().eval_dir(), large).ok());
  const auto history = read_history(layout());
  ASSERT_TRUE(history.ok()) << history.status().to_string();
  EXPECT_LE(history->train.front().metrics.size(), 64u);
  ASSERT_EQ(history->evals.size(), 1u);
  EXPECT_EQ(history->evals.front().step, 10u);
}

// The file can be that of another user: memory is limited. Every second record is used, and the last one.
TEST_F(RunReportTest, ReadsFewRecordsOfLongRun) {
  constexpr uint64_t kRecords = 200'003;
  std::string line = to_json(to_record(make_train_metrics(1'000'000, 1)));
  const size_t step = line.find("1000000");
  ASSERT_NE(step, std::string::npos);
  std::string text;
  for (uint64_t i = 1; i <= kRecords; ++i)
    text += line.replace(step, 7, std::to_string(1'000'000 + i)) + "\n";
  write_file(layout().train_metrics_file(), text);
  const auto history = read_history(layout());
  ASSERT_TRUE(history.ok()) << history.status().to_string();
  ASSERT_EQ(history->train.size(), 100'002u);
  EXPECT_EQ(history->train.front().step, 1'000'002u);
  EXPECT_EQ(history->train.back().step, 1'000'000 + kRecords);
  double stalls = 0;
  for (const metrics::TrainMetrics& row : history->train) stalls += row.checkpoint_stall_ms;
  EXPECT_DOUBLE_EQ(stalls, 1.5 * kRecords);
}

TEST_F(RunReportTest, ReportsCorruptMetricsLine) {
  write_file(layout().train_metrics_file(),
             metrics::to_json(metrics::to_record(make_train_metrics(10, 1))) + "\n{\"step\":\n");
  const CommandResult result = ctl({"report"});
  EXPECT_EQ(result.code, 74);
  EXPECT_THAT(result.err, HasSubstr("train.jsonl:2"));
}

TEST_F(RunReportTest, ReportsCorruptEvaluationFile) {
  write_train_metrics(3);
  write_file(layout().eval_dir() + "/step-000000010.json", "{}");
  const CommandResult result = ctl({"report"});
  EXPECT_EQ(result.code, 74);
  EXPECT_THAT(result.err, HasSubstr("step-000000010.json"));
}

TEST_F(RunReportTest, PlotCommandRendersLargerPlot) {
  write_train_metrics(100);
  const CommandResult result = ctl({"plot"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 23);
}

TEST_F(RunReportTest, PlotCommandWritesSvgOfLossesOrMetric) {
  write_train_metrics(100);
  write_eval(500, 2);
  write_eval(1000, 1);
  const CommandResult losses = ctl({"plot", "--output", "-"});
  ASSERT_EQ(losses.code, 0) << losses.err;
  EXPECT_THAT(losses.out, ::testing::StartsWith("<svg "));
  EXPECT_THAT(losses.out, HasSubstr(">train loss</text>"));
  const std::string file = layout().root() + "/loss.svg";
  const CommandResult metric = ctl({"plot", "--metric", "loss", "--output", file});
  ASSERT_EQ(metric.code, 0) << metric.err;
  std::ifstream in(file);
  const std::string svg(std::istreambuf_iterator<char>(in), {});
  EXPECT_THAT(svg, HasSubstr(">valid loss</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("train loss")));
}

TEST_F(RunReportTest, ListsNewestChangesOfSettings) {
  write_train_metrics(100);
  EXPECT_THAT(ctl({"report"}).out, Not(HasSubstr("changed at step")));
  std::string lines;
  for (uint64_t step = 1; step <= 12; ++step)
    lines += run::to_json({.time = "2026-01-31T12:00:00.123Z",
                           .step = 100 * step,
                           .key = "optimizer.lr",
                           .previous = "3.0e-04",
                           .current = "1.0e-04"}) +
             "\n";
  write_file(layout().setting_changes_file(), lines + "{\"time\":\"20");
  const CommandResult report = ctl({"report"});
  ASSERT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(report.out, HasSubstr("2 earlier changes of settings\n"
                                    "changed at step 300: optimizer.lr 3.0e-04 -> 1.0e-04\n"));
  EXPECT_THAT(report.out, HasSubstr("changed at step 1 200: optimizer.lr"));
}

TEST_F(RunReportTest, PlotCommandShowsTrainingMetric) {
  std::vector<metrics::TrainMetrics> rows;
  for (uint64_t i = 1; i <= 5; ++i) {
    rows.push_back(make_train_metrics(10 * i, 1));
    rows.back().metrics.emplace_back("accuracy", static_cast<double>(i) / 10);
  }
  write_train_metrics(rows);
  const CommandResult plot = ctl({"plot", "--metric", "accuracy", "--output", "-"});
  ASSERT_EQ(plot.code, 0) << plot.err;
  EXPECT_THAT(plot.out, HasSubstr(">train accuracy</text>"));
  EXPECT_THAT(ctl({"plot", "--metric", "mae"}).err, HasSubstr("available metrics: accuracy"));
}

TEST_F(RunReportTest, PlotCommandListsAvailableMetricsOnUnknownMetric) {
  write_train_metrics(10);
  EXPECT_THAT(ctl({"plot", "--metric", "accuracy"}).err, HasSubstr("no evaluation yet"));
  write_eval(100, 2);
  const CommandResult result = ctl({"plot", "--metric", "accuracy"});
  EXPECT_EQ(result.code, 78);
  EXPECT_THAT(result.err, HasSubstr("'accuracy'; available metrics: bits_per_byte, loss"));
}

}  // namespace
}  // namespace stoker::ctl
