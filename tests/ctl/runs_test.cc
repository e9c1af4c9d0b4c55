// Commands on several runs: runs, report --html, plot.
#include <boost/json.hpp>

#include "ctl/html_report.h"
#include "ctl/live_status.h"
#include "shared/run/setting_changes.h"
#include "shared/view/run_view.h"
#include "tests/ctl/fake_daemon.h"
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
    write_best(100, 1.25);
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
  static FakeDaemon stokerd_of(const run::RunLayout& run, const control::TrainerStatus& status) {
    return FakeDaemon(
        run.control_socket(),
        [reply = R"({"id":2,"result":)" + control::to_json(status) + "}"](const std::string&) {
          return reply;
        },
        control::HelloReply{
            .stoker_version = "1", .role = "read", .run = *control::identify_run(run.root())});
  }
};

TEST_F(RunsTest, ListsRunsBelowDirectory) {
  write_two_runs();
  const CommandResult result = run_with_arguments({"runs", root_.path()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, ContainsRegex("  run +finished [^\n]* 200 "));
  EXPECT_THAT(result.out, ContainsRegex("  group/second +failed [^\n]* 150 "));
  EXPECT_THAT(
      result.out,
      ContainsRegex("  run +finished [^\n]* 200 +1.200 +valid/loss 1.250 +all steps are done"));
  EXPECT_THAT(result.out, HasSubstr("disk full"));
  const auto list =
      boost::json::parse(run_with_arguments({"--json", "runs", root_.path()}).out).as_array();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_TRUE(list[0].at("loss").is_number());
}

// A full disk: only stokerd knows, because it can write no file.
TEST_F(RunsTest, AsksStokerdsOfRunningRuns) {
  write_two_runs();
  const std::string names[] = {"degraded", "silent", "paused", "closed"};
  std::vector<FileLock> locks;
  std::vector<view::FoundRun> runs;
  for (const std::string& name : names) {
    const run::RunLayout run(root_ / name);
    std::filesystem::copy(layout().root(), run.root(), std::filesystem::copy_options::recursive);
    std::filesystem::remove(run.exit_status_file());
    auto lock = lock_file(run.lock_file(), "test");
    ASSERT_TRUE(lock.ok()) << lock.status().to_string();
    locks.push_back(*std::move(lock));
    runs.push_back({.name = name, .layout = run});
  }
  control::TrainerStatus status{.state = control::TrainerState::kDegraded, .step = 300};
  status.checkpoint.last_saved_step = 100;
  status.checkpoint.last_error = "No space left on device";
  const auto fake = stokerd_of(runs[0].layout, status);
  status = {.state = control::TrainerState::kPaused, .step = 200};
  const auto paused = stokerd_of(runs[2].layout, status);
  // Its socket is left behind; the last one has none: control.socket: null.
  stokerd_of(runs[1].layout, status).stop();
  ASSERT_TRUE(std::filesystem::exists(runs[1].layout.control_socket()));
  const auto found = read_summaries(runs, std::chrono::minutes(1));
  EXPECT_EQ(found[0].state, "degraded");
  EXPECT_EQ(found[0].health, view::Health::kBad);
  EXPECT_EQ(found[0].reason, "No space left on device");
  EXPECT_EQ(found[0].step, 300u);
  EXPECT_EQ(found[0].next, "fix the cause; 200 steps since the last checkpoint");
  EXPECT_EQ(found[1].state, "no answer");
  EXPECT_EQ(found[1].health, view::Health::kAttention);
  EXPECT_EQ(found[1].step, 200u);  // of the last record
  EXPECT_EQ(found[3].state, "running");
  EXPECT_EQ(found[2].state, "paused");
  EXPECT_EQ(found[2].next, "stokerctl resume");
}

// A run that is well, but whose evaluator is not: state, reason and what to do say so.
TEST_F(RunsTest, ShowsEvaluatorThatCrashed) {
  write_two_runs();
  std::filesystem::remove(layout().exit_status_file());
  const auto lock = lock_file(layout().lock_file(), "test");
  ASSERT_TRUE(lock.ok());
  const auto found = [&] { return view::read_summary(layout(), "run"); };
  EXPECT_EQ(found().health, view::Health::kGood);  // there was none
  EXPECT_EQ(found().evaluator.phase, run::EvaluatorState::Phase::kNotStarted);
  write_file(layout().eval_lock_file(), "pid=1");
  EXPECT_EQ(found().evaluator.phase, run::EvaluatorState::Phase::kCrashed);
  EXPECT_EQ(found().health, view::Health::kAttention);
  EXPECT_THAT(found().reason, HasSubstr("the evaluator has crashed: "));
  EXPECT_THAT(found().next, HasSubstr("start stoker-eval again"));
  write_file(layout().eval_exit_status_file(),
             R"({"state":"failed","step":0,"reason":"no memory left","exit_code":71})");
  EXPECT_EQ(found().reason, "the evaluator has failed: no memory left");
  EXPECT_THAT(run_with_arguments({"runs", root_.path()}).out, HasSubstr("no memory left"));
  write_file(layout().eval_exit_status_file(),
             R"({"state":"stopped","step":0,"reason":"","exit_code":0})");
  EXPECT_EQ(found().health, view::Health::kGood);
  // Another user's link says nothing.
  std::filesystem::remove(layout().eval_exit_status_file());
  write_file(path("elsewhere"), R"({"state":"failed","step":0,"reason":"x","exit_code":1})");
  std::filesystem::create_symlink(path("elsewhere"), layout().eval_exit_status_file());
  EXPECT_EQ(found().evaluator.phase, run::EvaluatorState::Phase::kNotStarted);
}

// A row has one line on a terminal of 80 columns, whatever the reason is.
TEST_F(RunsTest, CutsNameAndReasonOnTerminal) {
  write_two_runs();
  const std::string reason = "feed: data.train: " + std::string(200, 'x');
  write_file(second() + "/exit_status.json",
             R"({"state":"failed","step":150,"exit_code":74,"reason":")" + reason + R"("})");
  std::filesystem::create_directories(root_ / "a_name_of_more_characters_than_have_room");
  std::filesystem::copy(layout().root(), root_ / "a_name_of_more_characters_than_have_room",
                        std::filesystem::copy_options::recursive);
  const std::string out = run_with_arguments({"runs", root_.path()}, kTerminal).out;
  EXPECT_LE(widest_line(out), 80u);
  EXPECT_THAT(out, HasSubstr("feed: data."));
  EXPECT_THAT(out, HasSubstr("…\n"));
  EXPECT_THAT(out, HasSubstr("  a_name_of_m"));
  EXPECT_THAT(out, HasSubstr("\x1b[1;31mfailed\x1b[0m"));
  EXPECT_THAT(run_with_arguments({"runs", root_.path()}).out, HasSubstr(reason));  // a pipe
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
  const std::string start("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\2\0\0\0\2", 24);
  const std::string png = start + std::string(3 << 20, 'x');
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
  EXPECT_EQ(run_with_arguments({"plot", layout().root(), path("none")}).code, 78);
}

// The same table as on the page: what differs, the best value first.
TEST_F(RunsTest, ComparesRunsInTable) {
  write_two_runs();
  const auto config = [](const std::string& lr) {
    return "data:\n  train: {format: synthetic, num_samples: 10, input_shape: [2], num_classes: "
           "2}\n"
           "model: {name: mlp, hidden_sizes: [2]}\ntask: {name: classification}\n"
           "optimizer:\n  lr: " +
           lr + "\n";
  };
  write_file(layout().config_file(), config("3.0e-04"));
  write_file(second() + "/config.yaml", config("0.1"));
  write_file(second() + "/eval/step-000000100.json",
             R"({"step":100,"manifest_sha256":"","datasets":{"valid":{"loss":1.0,)"
             R"("bits_per_byte":1.5,"num_samples":100}},"duration_seconds":1,)"
             R"("created_at":"2026-01-31T12:00:00.000Z"})");
  const CommandResult result = run_with_arguments({"report", layout().root(), second()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("optimizer.lr"));
  EXPECT_THAT(result.out, HasSubstr("valid loss"));
  EXPECT_THAT(result.out, ContainsRegex("second +0.1 +1.000 +100 [^\n]*failed\n"
                                        "  run +0.0003 +1.250 +100 [^\n]*finished\n$"));
  EXPECT_LE(widest_line(run_with_arguments({"report", layout().root(), second()}, kTerminal).out),
            80u);
}

// For the completion of a shell.
TEST_F(RunsTest, PrintsCandidatesOfArguments) {
  write_two_runs();
  EXPECT_EQ(ctl({"--print-candidates", "metrics"}).out, "bits_per_byte\nloss\n");
  EXPECT_THAT(ctl({"--print-candidates", "steps"}).out, ::testing::StartsWith("latest\nbest\n"));
  write_file(
      layout().config_file(),
      "data:\n  train: {format: synthetic, num_samples: 10, input_shape: [2], num_classes: 2}\n"
      "model: {name: mlp, hidden_sizes: [2]}\ntask: {name: classification}\n");
  EXPECT_THAT(ctl({"--print-candidates", "keys"}).out, HasSubstr("\nmodel.hidden_sizes\n"));
  const std::string live = ctl({"--print-candidates", "live-keys"}).out;
  EXPECT_THAT(live, HasSubstr("optimizer.lr\n"));
  EXPECT_THAT(live, ::testing::Not(HasSubstr("model.hidden_sizes")));
  EXPECT_EQ(ctl({"--print-candidates", "else"}).code, 64);
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

// The limits are 10,000 evaluations of a run, and 50,000 folders of one user.
TEST_F(RunsTest, SaysWhichEvaluationsReportAndPlotLeaveOut) {
  write_train_metrics(10);
  for (uint64_t step = 1; step <= 10'002; ++step)
    write_file(run::eval_result_path(layout().eval_dir(), step),
               run::to_json(run::EvalResult{
                   .step = step, .datasets = {{.dataset = "valid", .metrics = {{"loss", 2}}}}}));
  for (const char* const command : {"report", "plot"}) {
    const CommandResult result = ctl({command});
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.err, "stokerctl: " + layout().root() +
                              ": the newest 10000 evaluations are shown, 2 older ones are not\n");
  }
  std::filesystem::remove(run::eval_result_path(layout().eval_dir(), 1));
  std::filesystem::remove(run::eval_result_path(layout().eval_dir(), 2));
  EXPECT_EQ(ctl({"report"}).err, "");
}

TEST_F(RunsTest, SaysHowManyFoldersAreNotSearched) {
  for (int i = 0; i < 50'002; ++i)
    std::filesystem::create_directories(root_ / ("runs/" + std::to_string(i)));
  const std::string root = root_ / "runs";
  EXPECT_EQ(
      run_with_arguments({"--json", "runs", root}).err,
      "stokerctl: 2 folders not searched to the end: their owner has too many in " + root + "\n");
  std::filesystem::remove(root + "/0");
  EXPECT_THAT(run_with_arguments({"--json", "runs", root}).err,
              HasSubstr("stokerctl: 1 folder not searched"));
  std::filesystem::remove(root + "/1");
  EXPECT_EQ(run_with_arguments({"--json", "runs", root}).err, "");
}

TEST_F(RunsTest, RejectsRunsTogetherWithRunDir) {
  write_two_runs();
  const CommandResult result = ctl({"plot", second()});
  EXPECT_EQ(result.code, 64);
  EXPECT_THAT(result.err, HasSubstr("not both"));
}

}  // namespace
}  // namespace stoker::ctl
