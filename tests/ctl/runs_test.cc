// Commands on several runs: runs, report --html, plot.
#include <boost/json.hpp>

#include "ctl/html_report.h"
#include "shared/run/setting_changes.h"
#include "shared/view/run_view.h"
#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class RunsTest : public CtlTest {
 protected:
  // Two runs: root_/run with records, and a copy of it that has ended.
  void write_two_runs() {
    write_train_metrics(20);
    write_eval(100, 1.25);
    write_file(layout().config_file(), "optimizer:\n  lr: 0.1\n");
    write_file(layout().trainer_log(),
               "2026-01-31T12:00:00.000Z info    checkpoint saved step=5\n");
    write_exit_status(run::RunOutcome::kFinished, 200);
    std::filesystem::create_directories(root_ / "group");
    std::filesystem::copy(layout().root(), second(), std::filesystem::copy_options::recursive);
    write_file(second() + "/exit_status.json",
               R"({"state":"failed","step":150,"reason":"disk full","exit_code":74})");
  }
  std::string second() const { return root_ / "group/second"; }
};

TEST_F(RunsTest, ListsRunsBelowDirectory) {
  write_two_runs();
  const CommandResult result = run_with_arguments({"runs", root_.path()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, ContainsRegex("  run +finished +200 "));
  EXPECT_THAT(result.out, ContainsRegex("  group/second +failed +150 "));
  EXPECT_THAT(result.out, HasSubstr("checkpoint saved, "));
  const auto list =
      boost::json::parse(run_with_arguments({"--json", "runs", root_.path()}).out).as_array();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_TRUE(list[0].at("loss").is_number());
}

TEST_F(RunsTest, FollowsNoLinkOutOfDirectory) {
  write_two_runs();
  std::filesystem::create_directory_symlink(layout().root(), root_ / "group/linked");
  const CommandResult result = run_with_arguments({"runs", root_ / "group"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("second"));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("linked")));
}

TEST_F(RunsTest, ReportsDirectoryWithoutRuns) {
  std::filesystem::create_directories(path("empty"));
  const CommandResult result = run_with_arguments({"runs", path("empty")});
  EXPECT_EQ(result.code, 78);
  EXPECT_THAT(result.err, HasSubstr("no run directory in it"));
  EXPECT_EQ(run_with_arguments({"runs", path("missing")}).code, 78);
}

TEST_F(RunsTest, WritesReportOfSeveralRunsAsPage) {
  write_two_runs();
  write_file(layout().setting_changes_file(), run::to_json({.time = "2026-01-31T12:00:00.123Z",
                                                            .step = 7,
                                                            .key = "train.max_steps",
                                                            .previous = "10",
                                                            .current = "20"}) +
                                                  "\n");
  const std::string file = path("report.html");
  const CommandResult result =
      run_with_arguments({"report", "--html", file, layout().root(), second()});
  EXPECT_EQ(result.code, 0) << result.err;
  const std::string page = *read_file(file, kMaxReportBytes);
  EXPECT_THAT(page, HasSubstr("\"name\":\"second\""));
  EXPECT_THAT(page, HasSubstr("disk full"));
  EXPECT_THAT(page, HasSubstr(R"("key":"train.max_steps","previous":"10","current":"20")"));
  EXPECT_THAT(page, HasSubstr("lr: 0.1"));
}

// Images that do not fit are omitted; the page stays within its limit.
TEST_F(RunsTest, LimitsBytesOfReport) {
  write_two_runs();
  std::vector<run::RunLayout> runs;
  const std::string png = "\x89PNG\r\n\x1a\n" + std::string(3 << 20, 'x');
  for (const char* const kind : {"misclassified", "confusion_matrix"})
    write_file(layout().eval_artifacts_dir() + "/step-000000100.val." + kind + ".png", png);
  runs.push_back(layout());
  const auto page = render_html_report(runs);
  ASSERT_TRUE(page.ok()) << page.status().to_string();
  EXPECT_LE(page->size(), kMaxReportBytes);
  write_file(layout().config_file(), std::string(200 << 10, 'x'));
  for (int i = 0; i < 40; ++i) runs.push_back(layout());
  EXPECT_EQ(render_html_report(runs).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(RunsTest, PlotsSeveralRunsTogether) {
  write_two_runs();
  const CommandResult result = run_with_arguments({"plot", layout().root(), second()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("run train loss"));
  EXPECT_THAT(result.out, HasSubstr("second valid loss"));
  EXPECT_THAT(run_with_arguments({"report", layout().root(), second()}).out,
              HasSubstr(second() + "\n"));
  EXPECT_EQ(run_with_arguments({"plot", layout().root(), path("none")}).code, 78);
}

TEST_F(RunsTest, NamesRunWithoutMetricOfPlot) {
  write_two_runs();
  std::filesystem::remove_all(second() + "/metrics");
  std::filesystem::remove_all(second() + "/eval");
  const CommandResult result =
      run_with_arguments({"plot", layout().root(), second(), "--metric", "loss"});
  EXPECT_EQ(result.code, 78);
  EXPECT_THAT(result.err, HasSubstr(second() + ": no record has a finite value of 'loss'"));
}

TEST_F(RunsTest, RejectsRunsTogetherWithRunDir) {
  write_two_runs();
  const CommandResult result = ctl({"plot", second()});
  EXPECT_EQ(result.code, 64);
  EXPECT_THAT(result.err, HasSubstr("not both"));
}

}  // namespace
}  // namespace stoker::ctl
