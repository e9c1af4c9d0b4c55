#include "shared/view/run_view.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/checkpoint/manifest.h"
#include "shared/run/run_state.h"
#include "tests/support/temporary_directory.h"

namespace stoker::view {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;

// The start of an image of 2 x 1 pixels.
const std::string kPng("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\2\0\0\0\1...", 27);

class RunViewTest : public ::testing::Test {
 protected:
  run::RunLayout layout() const { return run::RunLayout(root_ / "demo"); }
  static void append(const std::string& path, std::string_view content) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary | std::ios::app) << content;
  }
  void append_record(uint64_t step, double loss) {
    append(layout().train_metrics_file(),
           metrics::to_json(metrics::to_record(
               {.step = step, .loss = loss, .wall_time = "2026-01-31T12:00:00.000Z"})) +
               "\n");
  }
  void write_eval(uint64_t step, double loss, const std::string& manifest = "abc") {
    std::filesystem::create_directories(layout().eval_dir());
    ASSERT_TRUE(run::write_eval_result(
                    default_file_system(), layout().eval_dir(),
                    {.step = step,
                     .manifest_sha256 = manifest,
                     .datasets = {{.dataset = "val", .samples = 5, .metrics = {{"loss", loss}}}},
                     .created = "2026-01-31T12:00:00.000Z"})
                    .ok());
  }
  std::string artifact(const std::string& name) const {
    return layout().eval_artifacts_dir() + "/" + name;
  }
  static json::object parse(const std::string& text) { return json::parse(text).as_object(); }

  const test::TemporaryDirectory root_;
};

TEST_F(RunViewTest, DescribesEmptyDirectory) {
  RunView view(layout());
  const json::object run = parse(view.overview());
  EXPECT_EQ(run.at("name"), "demo");
  EXPECT_EQ(run.at("state"), "not started");
  EXPECT_TRUE(run.at("evaluations").as_array().empty());
  EXPECT_TRUE(parse(view.curves()).at("columns").as_object().at("step").as_array().empty());
}

TEST_F(RunViewTest, DescribesEndedRun) {
  append_record(10, 2);
  append_record(20, 1);
  write_eval(20, 1.5);
  append(layout().config_file(), "train:\n  max_steps: 100\n");
  append(layout().sample_errors_file(), "{\"step\":7,\"path\":\"a.jpg\"}\nnot JSON\n");
  append(layout().trainer_log(),
         "2026-01-31T12:00:00.000Z info    daemon started pid=1\n"
         "2026-01-31T12:00:01.000Z info    training progress step=1\n"
         "2026-01-31T12:00:02.000Z warning disk \xff full\n");
  ASSERT_TRUE(
      run::write_exit_status(
          default_file_system(), layout(),
          {.outcome = run::RunOutcome::kFailed, .step = 20, .reason = "no space", .exit_code = 74})
          .ok());
  RunView view(layout());
  const json::object run = parse(view.overview());
  EXPECT_EQ(run.at("state"), "failed");
  EXPECT_EQ(run.at("reason"), "no space");
  EXPECT_EQ(run.at("step"), 20);
  EXPECT_EQ(run.at("max_steps"), 100);
  const json::object& eval = run.at("evaluations").as_array().at(0).as_object();
  EXPECT_EQ(eval.at("step"), 20);
  EXPECT_EQ(eval.at("datasets").at("val").at("loss"), 1.5);
  EXPECT_EQ(run.at("sample_errors").as_array().size(), 1u);
  EXPECT_EQ(run.at("log").as_array().size(), 3u);
  EXPECT_EQ(run.at("events").as_array().size(), 2u);
  EXPECT_THAT(json::serialize(run.at("log")), HasSubstr("disk \xEF\xBF\xBD full"));
}

TEST_F(RunViewTest, ListsEventsThatChangeRun) {
  const std::string time = "2026-01-31T12:00:00.000Z ";
  append(layout().trainer_log(),
         time + "info    training paused step=7\n" + time + "info    training resumed step=7\n" +
             time + "info    checkpoint saved path=\"training paused\"\n" + time +
             "info    training pausedly step=7\n" + time + "debug   control command\n" +
             R"({"time":"t","level":"info","event":"training paused","step":8})"
             "\n"
             R"({"time":"t","level":"info","event":"checkpoint saved","path":"training paused"})"
             "\n"
             R"({"time":"t","level":"warning","event":"training stalled"})"
             "\n");
  const json::value events = parse(RunView(layout()).overview()).at("events");
  ASSERT_EQ(events.as_array().size(), 4u) << json::serialize(events);
  EXPECT_EQ(events.at(0), json::value(time + "info    training paused step=7"));
  EXPECT_THAT(std::string(events.at(2).as_string()), HasSubstr("\"step\":8"));
}

// More results than the page has, of a branch that the run has left.
TEST_F(RunViewTest, HasResultsOfPresentBranchBehindManyOfFormerOne) {
  std::string lines;
  const auto save = [&](uint64_t step, const std::string& manifest) {
    write_eval(step, 0.5, manifest);
    lines += json::serialize(
                 json::object{{"event", "saved"}, {"step", step}, {"manifest_sha256", manifest}}) +
             "\n";
  };
  for (uint64_t step = 1; step <= 3; ++step) save(step, "present" + std::to_string(step));
  for (uint64_t step = 4; step <= 506; ++step) save(step, "left" + std::to_string(step));
  lines += R"({"event":"resumed","step":3,"manifest_sha256":"present3"})"
           "\n";
  append(layout().lineage_file(), lines);
  RunView view(layout());
  for (int i = 0; i < 2; ++i) {  // then from the cache
    const json::array evaluations = parse(view.overview())["evaluations"].as_array();
    ASSERT_EQ(evaluations.size(), 3u);
    for (uint64_t k = 0; k < 3; ++k)
      EXPECT_EQ(evaluations[k].as_object().at("step").to_number<uint64_t>(), k + 1);
  }
}

TEST_F(RunViewTest, CountsOlderResultsThatItDoesNotRead) {
  for (uint64_t step = 1; step <= 502; ++step) write_eval(step, 0.5);
  const json::object run = parse(RunView(layout()).overview());
  EXPECT_EQ(run.at("evaluations").as_array().size(), 500u);
  EXPECT_EQ(run.at("evaluations").at(0).at("step"), 3);
  EXPECT_EQ(run.at("unread_evaluations"), 2);
}

TEST_F(RunViewTest, HasDirectionsOfTableOfRun) {
  append(layout().config_file(), "");
  EXPECT_TRUE(parse(RunView(layout()).overview()).at("metrics").as_object().empty());
  append(
      layout().metric_table_file(),
      R"({"metrics":[{"name":"dice","direction":"maximize","unit":"fraction","help":"overlap"}]})");
  EXPECT_EQ(parse(RunView(layout()).overview()).at("metrics"),
            json::parse(R"({"dice":{"direction":"maximize","unit":"fraction","help":"overlap"}})"));
}

TEST_F(RunViewTest, HasEnvironmentOfLastStart) {
  const auto environment = [&] {
    return json::serialize(parse(RunView(layout()).overview()).at("environment"));
  };
  append(layout().trainer_log(),
         "2026-01-31T12:00:00.000Z info    training started model_digest=1 device=cpu "
         "num_threads=2 start_step=0 max_steps=9\n");
  EXPECT_EQ(environment(), R"({"device":"cpu","num_threads":"2"})");
  append(layout().trainer_log(),
         R"({"time":"2026-01-31T12:00:01.000Z","level":"info","event":"training started",)"
         R"("model_digest":"1","device":"cuda:0","num_threads":16,"start_step":5})"
         "\n2026-01-31T12:00:02.000Z info    training progress step=6\n");
  EXPECT_EQ(environment(), R"({"device":"cuda:0","num_threads":"16"})");
}

TEST_F(RunViewTest, HasMachineOfNewestCheckpoint) {
  checkpoint::Manifest manifest;
  manifest.step = 10;
  manifest.processor = "2 x AMD EPYC";
  manifest.system = "Debian 12, Linux 6.1";
  manifest.device = "cpu";
  manifest.num_threads = 2;
  manifest.files = {{"model.safetensors", 1, std::string(64, 'a')}};
  append(layout().checkpoints_dir() + "/step-000000010/manifest.json",
         checkpoint::to_json(manifest));
  const auto environment = [&] {
    return parse(RunView(layout()).overview()).at("environment").as_object();
  };
  EXPECT_EQ(environment().at("processor"), "2 x AMD EPYC");
  EXPECT_EQ(environment().at("system"), "Debian 12, Linux 6.1");
  // The start of a long run is no longer in the part of the log that is read.
  EXPECT_EQ(environment().at("device"), "cpu");
  EXPECT_EQ(environment().at("num_threads"), "2");
  append(layout().trainer_log(),
         "2026-01-31T12:00:00.000Z info    training started device=cuda:0 num_threads=16\n");
  EXPECT_EQ(environment().at("device"), "cuda:0") << "of a start after the checkpoint";
}

TEST_F(RunViewTest, HidesSecretSettings) {
  append(layout().config_file(),
         "run:\n  dir: demo\n  on_event_command: [{events: [\"*\"], command: [/bin/n, TOKEN]}]\n"
         "train:\n  max_steps: 100\n");
  const std::string run = RunView(layout()).overview();
  EXPECT_THAT(run, HasSubstr("dir: demo\\n  on_event_command: (hidden)\\ntrain:"));
  EXPECT_THAT(run, Not(HasSubstr("TOKEN")));
}

TEST_F(RunViewTest, FindsLimitedNumberOfRunsInAllFolders) {
  for (int folder = 0; folder < 4; ++folder)
    for (int run = 0; run < 5; ++run)
      append(root_ / ("a" + std::to_string(folder) + "/" + std::to_string(run) + "/config.yaml"),
             "");
  EXPECT_EQ(find_runs(root_.path()).size(), 20u);
  EXPECT_EQ(find_runs(root_.path(), 19).size(), 19u);
  EXPECT_EQ(find_runs(root_.path(), 7).size(), 7u);
  EXPECT_EQ(find_runs(root_.path(), 3).size(), 3u) << "within one folder";
}

TEST_F(RunViewTest, FindsRunsOfEachOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another user";
  for (int run = 0; run < 30; ++run) {
    const std::string folder = root_ / ("a/" + std::to_string(run));
    append(folder + "/config.yaml", "");
    ASSERT_EQ(::chown(folder.c_str(), 4242, 4242), 0);
  }
  append(root_ / "b/config.yaml", "");
  append(root_ / "c/d/config.yaml", "");
  const auto runs = find_runs(root_.path(), 10);
  EXPECT_EQ(runs.size(), 10u);
  for (const char* const name : {"b", "c/d"})
    EXPECT_EQ(std::ranges::count(runs, std::string(name), &FoundRun::name), 1) << name;
}

// A result with very many names costs memory for each file that has it, also as a hard link.
TEST_F(RunViewTest, KeepsNoResultWithVeryManyMetrics) {
  const auto write = [&](uint64_t step, size_t count) {
    run::EvalResult result{.step = step,
                           .manifest_sha256 = "abc",
                           .datasets = {{.dataset = "val", .samples = 5, .metrics = {}}},
                           .created = "2026-01-31T12:00:00.000Z"};
    for (size_t i = 0; i < count; ++i)
      result.datasets.front().metrics.emplace_back("metric" + std::to_string(i), 0.5);
    std::filesystem::create_directories(layout().eval_dir());
    ASSERT_TRUE(run::write_eval_result(default_file_system(), layout().eval_dir(), result).ok());
  };
  write(10, 100);
  write(20, 10'000);
  const json::object run = parse(RunView(layout()).overview());
  ASSERT_EQ(run.at("evaluations").as_array().size(), 1u);
  EXPECT_EQ(run.at("evaluations").as_array()[0].as_object().at("step"), 10);
}

// A browser would draw a cell for each number.
TEST_F(RunViewTest, HasOnlyMatrixThatIsSquareAndFewClasses) {
  const auto classes_of = [&](size_t classes, size_t columns) {
    run::EvalResult result{
        .step = 10,
        .manifest_sha256 = "abc",
        .datasets = {{.dataset = "val", .samples = 5, .metrics = {{"loss", 0.5}}}},
        .created = "2026-01-31T12:00:00.000Z"};
    result.datasets.front().classes.resize(classes);
    result.datasets.front().confusion_matrix.assign(2, std::vector<uint64_t>(columns, 1));
    std::filesystem::create_directories(layout().eval_dir());
    EXPECT_TRUE(run::write_eval_result(default_file_system(), layout().eval_dir(), result).ok());
    return parse(RunView(layout()).overview()).at("classes");
  };
  EXPECT_EQ(classes_of(2, 2).at("confusion_matrix"), (json::array{{1, 1}, {1, 1}}));
  EXPECT_EQ(classes_of(2, 3).at("confusion_matrix"), json::array());
  EXPECT_TRUE(classes_of(1001, 2).is_null());
}

TEST_F(RunViewTest, SendsEventsForWhatIsNew) {
  append_record(10, 2);
  append(layout().trainer_log(), "old line\n");
  write_eval(10, 2);
  RunView view(layout());
  EXPECT_THAT(view.overview(), HasSubstr("old line"));
  EXPECT_THAT(view.curves(), HasSubstr("\"step\":[10]"));
  // Between what a page reads and the first events.
  append_record(20, 1);
  append(layout().trainer_log(), "new line\npartial");
  const std::string events = view.events();
  EXPECT_THAT(events, HasSubstr("event: train\ndata: {\"step\":[20]"));
  EXPECT_THAT(events, HasSubstr("event: log\ndata: [\"new line\"]\n\n"));
  EXPECT_THAT(events, Not(HasSubstr("event: run")));
  EXPECT_EQ(view.events(), "");
  write_eval(20, 1);
  EXPECT_THAT(view.events(), HasSubstr("event: run\n"));
  std::filesystem::remove(layout().train_metrics_file());
  append_record(10, 3);
  EXPECT_THAT(view.events(), HasSubstr("event: reset\n"));
}

TEST_F(RunViewTest, SendsNothingThatPageReadsItself) {
  append_record(10, 2);
  append(layout().trainer_log(), "old line\n");
  write_eval(10, 2);
  RunView view(layout());
  EXPECT_EQ(view.events(), "");
}

TEST_F(RunViewTest, SendsEventsToFirstPageAfterSecondHasRead) {
  append_record(10, 2);
  RunView view(layout());
  (void)view.curves();
  append_record(20, 1);
  (void)view.curves();
  EXPECT_THAT(view.events(), HasSubstr("{\"step\":[20]"));
}

TEST_F(RunViewTest, SendsRestOfLineAndOfLogThatIsNew) {
  RunView view(layout());
  (void)view.overview();
  append(layout().trainer_log(), "first line\nsecond");
  EXPECT_THAT(view.events(), HasSubstr("event: log\ndata: [\"first line\"]\n\n"));
  append(layout().trainer_log(), " line\n");
  EXPECT_THAT(view.events(), HasSubstr("event: log\ndata: [\"second line\"]\n\n"));
}

// Old lines must not appear behind the ones that the page has read.
TEST_F(RunViewTest, SendsLastLinesOfMany) {
  append(layout().trainer_log(), "line 0\n");
  RunView view(layout());
  (void)view.overview();
  std::string lines;
  for (int i = 1; i <= 100'000; ++i) lines += "line " + std::to_string(i) + "\n";
  append(layout().trainer_log(), lines);
  const std::string events = view.events();
  EXPECT_THAT(events, HasSubstr("data: [\"line 99801\","));
  EXPECT_THAT(events, HasSubstr("\"line 100000\"]"));
  EXPECT_EQ(view.events(), "");
}

TEST_F(RunViewTest, FollowsNoLinkOutOfRun) {
  const std::string secret = root_ / "secret";
  append(secret + "/stokerd.log", "secret line\n");
  append(secret + "/train.jsonl", "");
  append(secret + "/best.json", R"({"dataset":"secret","metric":"loss","value":1,"step":1,)"
                                R"("manifest_sha256":"abc"})");
  append(secret + "/exit_status.json",
         R"({"state":"failed","step":1,"reason":"secret reason","exit_code":1})");
  append(secret + "/step-000000010.val.generated.txt", "secret text");
  std::filesystem::create_directories(layout().eval_dir());
  const auto link = [&](const std::string& to, const std::string& from) {
    std::filesystem::create_symlink(to, from);
  };
  link(secret + "/stokerd.log", layout().config_file());
  link(secret, layout().logs_dir());
  link("../secret", layout().metrics_dir());
  link(secret + "/best.json", layout().best_file());
  link(secret + "/exit_status.json", layout().exit_status_file());
  link(secret, layout().eval_artifacts_dir());
  RunView view(layout());
  const json::object run = parse(view.overview());
  EXPECT_THAT(json::serialize(run), Not(HasSubstr("secret ")));
  EXPECT_EQ(run.at("config"), "");
  EXPECT_TRUE(run.at("log").as_array().empty());
  EXPECT_TRUE(run.at("artifacts").as_array().empty());
  EXPECT_FALSE(run.contains("best"));
  EXPECT_EQ(run.at("state"), "not started");
  EXPECT_FALSE(view.read_artifact("step-000000010.val.generated.txt").ok());
  append(layout().former_exit_status_file(),
         R"({"state":"finished","step":9,"reason":"own","exit_code":0})");
  EXPECT_THAT(view.overview(), Not(HasSubstr("secret "))) << "beside a file of the run";
  append(secret + "/train.jsonl",
         metrics::to_json(metrics::to_record({.step = 77, .loss = 1})) + "\n");
  append(secret + "/stokerd.log", "secret line 2\n");
  EXPECT_THAT(view.curves(), Not(HasSubstr("77")));
  EXPECT_THAT(view.events(), Not(HasSubstr("secret")));
}

TEST_F(RunViewTest, FollowsLinkToRun) {
  append(layout().trainer_log(), "a line\n");
  std::filesystem::create_symlink(layout().root(), root_ / "link");
  RunView view(run::RunLayout(root_ / "link"));
  EXPECT_THAT(view.overview(), HasSubstr("a line"));
}

TEST_F(RunViewTest, ReadsArtifactsOfEvaluatorOnly) {
  append(artifact("step-000000010.val.misclassified.png"), kPng);
  append(artifact("step-000000010.val.generated.txt"), "<b>text</b>");
  append(artifact("step-000000010.val.no_image.png"), "<script>");
  std::string large = kPng;
  large[18] = '\x40';  // 16384 x 256 pixels and more, for which a browser would need memory
  large[22] = '\x01';
  append(artifact("step-000000010.val.large.png"), large);
  append(artifact("secret.txt"), "secret");
  append(root_ / "outside.txt", "outside");
  std::filesystem::create_symlink(root_ / "outside.txt", artifact("step-000000010.val.link.txt"));
  const RunView view(layout());
  const auto image = view.read_artifact("step-000000010.val.misclassified.png");
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(image->content_type, "image/png");
  EXPECT_EQ(image->bytes, kPng);
  EXPECT_EQ(view.read_artifact("step-000000010.val.generated.txt")->content_type,
            "text/plain; charset=utf-8");
  for (const char* const name :
       {"secret.txt", "step-000000010.val.link.txt", "step-000000010.val.no_image.png",
        "step-000000010.val.large.png", "../best.json", "step-000000010.val/../../best.json",
        "step-000000010", "", "step-000000010.val.missing.png"})
    EXPECT_FALSE(view.read_artifact(name).ok()) << name;
}

TEST_F(RunViewTest, ListsArtifactsByStepDatasetAndKind) {
  append(artifact("step-000000010.val.hard.misclassified.png"), kPng);
  RunView view(layout());
  const json::object run = parse(view.overview());
  EXPECT_EQ(json::serialize(run.at("artifacts")),
            R"([{"name":"step-000000010.val.hard.misclassified.png","step":10,)"
            R"("dataset":"val.hard","kind":"misclassified.png"}])");
}

}  // namespace
}  // namespace stoker::view
