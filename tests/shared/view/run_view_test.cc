#include "shared/view/run_view.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/run/run_state.h"

namespace stoker::view {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kPng = "\x89PNG\r\n\x1a\n...";

class RunViewTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "stoker-view-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  run::RunLayout layout() const { return run::RunLayout(root_ + "/demo"); }
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
  void write_eval(uint64_t step, double loss) {
    std::filesystem::create_directories(layout().eval_dir());
    ASSERT_TRUE(run::write_eval_result(
                    default_file_system(), layout().eval_dir(),
                    {.step = step,
                     .manifest_sha256 = "abc",
                     .datasets = {{.dataset = "val", .samples = 5, .metrics = {{"loss", loss}}}},
                     .created = "2026-01-31T12:00:00.000Z"})
                    .ok());
  }
  std::string artifact(const std::string& name) const {
    return layout().eval_artifacts_dir() + "/" + name;
  }
  static json::object parse(const std::string& text) { return json::parse(text).as_object(); }

  std::string root_;
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
  EXPECT_THAT(std::string(run.at("last_event").as_string()), HasSubstr("disk \xEF\xBF\xBD full"));
}

TEST_F(RunViewTest, SendsEventsForWhatIsNew) {
  append_record(10, 2);
  append(layout().trainer_log(), "old line\n");
  write_eval(10, 2);
  RunView view(layout());
  EXPECT_EQ(view.events(), "");  // a page reads the rest itself
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

TEST_F(RunViewTest, ReadsArtifactsOfEvaluatorOnly) {
  append(artifact("step-000000010.val.misclassified.png"), kPng);
  append(artifact("step-000000010.val.generated.txt"), "<b>text</b>");
  append(artifact("step-000000010.val.no_image.png"), "<script>");
  append(artifact("secret.txt"), "secret");
  append(root_ + "/outside.txt", "outside");
  std::filesystem::create_symlink(root_ + "/outside.txt", artifact("step-000000010.val.link.txt"));
  const RunView view(layout());
  const auto image = view.read_artifact("step-000000010.val.misclassified.png");
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(image->content_type, "image/png");
  EXPECT_EQ(image->bytes, kPng);
  EXPECT_EQ(view.read_artifact("step-000000010.val.generated.txt")->content_type,
            "text/plain; charset=utf-8");
  for (const char* const name :
       {"secret.txt", "step-000000010.val.link.txt", "step-000000010.val.no_image.png",
        "../best.json", "step-000000010.val/../../best.json", "step-000000010", "",
        "step-000000010.val.missing.png"})
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
