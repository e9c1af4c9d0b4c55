#include "ctl/run_report.h"

#include <fstream>
#include <iterator>
#include <limits>

#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using RunReportTest = CtlTest;

TEST_F(RunReportTest, ShowsLossesBestAndEndState) {
  put_rows(100);
  for (uint64_t step = 100; step <= 1000; step += 100) put_eval(step, step == 700 ? 1.0625 : 2.0);
  put_end(run::RunOutcome::kFinished, 1000);
  const Answer answer = ctl({"report"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  for (const char* text :
       {"valid loss", "bits/byte", "samples/s", "data wait", "(ms/step)", "checkpoint",
        "stall (ms)", "1.0625", "1234", "best valid loss 1.0625 at step 700\n",
        "16 000 samples in 13 s, epoch 10\n", "finished at step 1 000: all steps are done\n",
        "o valid loss", "1 000 steps\n"})
    EXPECT_THAT(answer.out, HasSubstr(text));
  EXPECT_LE(widest_line(answer.out), 80u) << answer.out;
  EXPECT_THAT(answer.out, Not(HasSubstr("\x1b")));
}

TEST_F(RunReportTest, FitsTerminalWidth) {
  put_rows(100);
  put_eval(1000, 2);
  const Answer answer = ctl({"report"}, kTerminal);
  EXPECT_THAT(answer.out, HasSubstr("\x1b[1m"));
  EXPECT_THAT(answer.out, HasSubstr("●"));
  EXPECT_LE(widest_line(answer.out), 80u) << answer.out;
}

TEST_F(RunReportTest, SumsStallsAndAveragesWaits) {
  std::vector<metrics::TrainMetrics> rows;
  for (uint64_t i = 1; i <= 1000; ++i) {
    rows.push_back(row_of(i, 1));
    rows.back().feed_wait_ms = i % 2 == 0 ? 4 : 0;
  }
  put_rows(rows);
  const Answer answer = ctl({"report"});
  // A table row covers a hundred steps: 100 stalls of 1.5 ms and a mean wait of 2 ms.
  EXPECT_THAT(answer.out, HasSubstr("1234       2.00         150\n")) << answer.out;
}

TEST_F(RunReportTest, AssignsEvaluationToNextReportedStep) {
  put_rows(3);  // 10 20 30
  put_eval(15, 2.2222);
  put_eval(33, 3.3333);  // the last checkpoint, after the last reported step
  const Answer answer = ctl({"report"});
  EXPECT_THAT(answer.out, ::testing::ContainsRegex(" 10 .* -  .*\n"));
  EXPECT_THAT(answer.out, ::testing::ContainsRegex(" 20 .* 2\\.2222 .*\n"));
  EXPECT_THAT(answer.out, ::testing::ContainsRegex(" 30 .* 3\\.3333 .*\n"));
}

TEST_F(RunReportTest, SuggestsEvaluatorWithoutEvaluations) {
  put_rows(1);
  const Answer answer = ctl({"report"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("no validation yet: stoker-eval --run-dir "));
  EXPECT_THAT(answer.out, HasSubstr("no stokerd has run here yet\n"));
}

TEST_F(RunReportTest, ShowsNanLosses) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  put_rows({row_of(10, nan), row_of(20, nan)});
  put_eval(20, nan);
  const Answer report = ctl({"report"});
  ASSERT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(report.out, HasSubstr("NaN"));
  EXPECT_THAT(report.out, HasSubstr("best valid loss: none is a number\n"));
  EXPECT_THAT(report.out, HasSubstr("no plot: no loss of "));
  const Answer plot = ctl({"plot"});
  EXPECT_EQ(plot.code, 74);
  EXPECT_THAT(plot.err, HasSubstr("train.jsonl is a number"));
}

TEST_F(RunReportTest, ReportsMissingMetricsBeforeFirstRecord) {
  for (const char* command : {"report", "plot"}) {
    const Answer answer = ctl({command});
    EXPECT_EQ(answer.code, 78);
    EXPECT_EQ(answer.out, "");
    EXPECT_THAT(answer.err, HasSubstr("no step has been reported yet"));
  }
}

TEST_F(RunReportTest, CondensesThousandsOfRecordsToTen) {
  put_rows(20'000);
  const Answer answer = ctl({"report"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(std::count(answer.out.begin(), answer.out.end(), '\n'), 3 + 10 + 4 + 1 + 13)
      << answer.out;
  EXPECT_THAT(answer.out, HasSubstr("  200 000 "));
}

TEST_F(RunReportTest, ReportsCorruptMetricsLine) {
  put(layout().train_metrics_file(),
      metrics::to_json(metrics::to_record(row_of(10, 1))) + "\n{\"step\":\n");
  const Answer answer = ctl({"report"});
  EXPECT_EQ(answer.code, 74);
  EXPECT_THAT(answer.err, HasSubstr("train.jsonl:2"));
}

TEST_F(RunReportTest, ReportsCorruptEvaluationFile) {
  put_rows(3);
  put(layout().eval_dir() + "/step-000000010.json", "{}");
  const Answer answer = ctl({"report"});
  EXPECT_EQ(answer.code, 74);
  EXPECT_THAT(answer.err, HasSubstr("step-000000010.json"));
}

TEST_F(RunReportTest, PlotCommandRendersLargerPlot) {
  put_rows(100);
  const Answer answer = ctl({"plot"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(std::count(answer.out.begin(), answer.out.end(), '\n'), 23);
}

TEST_F(RunReportTest, PlotCommandWritesSvgOfLossesOrMetric) {
  put_rows(100);
  put_eval(500, 2);
  put_eval(1000, 1);
  const Answer losses = ctl({"plot", "--svg", "-"});
  ASSERT_EQ(losses.code, 0) << losses.err;
  EXPECT_THAT(losses.out, ::testing::StartsWith("<svg "));
  EXPECT_THAT(losses.out, HasSubstr(">train loss</text>"));
  const std::string file = layout().root() + "/loss.svg";
  const Answer metric = ctl({"plot", "--metric", "loss", "--svg", file});
  ASSERT_EQ(metric.code, 0) << metric.err;
  std::ifstream in(file);
  const std::string svg(std::istreambuf_iterator<char>(in), {});
  EXPECT_THAT(svg, HasSubstr(">valid loss</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("train loss")));
}

TEST_F(RunReportTest, PlotCommandListsAvailableMetricsOnUnknownMetric) {
  put_rows(10);
  EXPECT_THAT(ctl({"plot", "--metric", "accuracy"}).err, HasSubstr("nothing was evaluated yet"));
  put_eval(100, 2);
  const Answer answer = ctl({"plot", "--metric", "accuracy"});
  EXPECT_EQ(answer.code, 78);
  EXPECT_THAT(answer.err, HasSubstr("'accuracy'; there are: bits_per_byte, loss"));
}

}  // namespace
}  // namespace stoker::ctl
