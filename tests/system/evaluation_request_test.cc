// `stokerctl evaluate` and stoker-eval as processes; only the run directory joins the two.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class EvaluationRequestTest : public RunTest {
 protected:
  int code_of(Process process) const {
    const auto exit = process.wait(60s);
    return exit ? exit->code : -1;
  }
};

TEST_F(EvaluationRequestTest, FollowerEvaluatesCheckpointAgain) {
  // Only inotify can wake it in time.
  const std::string config = write_config(small_config("eval: {poll_interval_seconds: 600}\n"));
  Process trainer = this->trainer(
      config, run_dir(),
      {"--set", "train.max_steps=100000000", "--set", "checkpoint.save_every_steps=100000000"});
  ASSERT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > 0; }));
  ASSERT_EQ(code_of(ctl(run_dir(), {"pause"}, "ctl")), 0);
  ASSERT_EQ(code_of(ctl(run_dir(), {"checkpoint"}, "ctl")), 0);
  Process follower = evaluator(run_dir(), {"--follow"});
  ASSERT_TRUE(wait_until(60s, [&] {
    return text_if_exists(path("stoker-eval.out")).find("reason=\"the next checkpoint") !=
           std::string::npos;
  }));
  const std::string step = std::to_string(newest_step(run_dir()));
  ASSERT_EQ(code_of(ctl(run_dir(), {"evaluate", step, "--wait"}, "evaluate")), 0);
  EXPECT_NE(log_of("evaluate").find(": val loss "), std::string::npos) << log_of("evaluate");
  EXPECT_NE(text_of(run_dir() + "/eval/outcomes.jsonl").find("\"request_id\":"), std::string::npos);
  const std::string records = text_of(run_dir() + "/metrics/eval.jsonl");
  EXPECT_EQ(std::ranges::count(records, '\n'), 2) << "evaluated twice";
  EXPECT_TRUE(wait_until(60s, [&] { return fs::is_empty(run_dir() + "/eval/requests"); }));
  EXPECT_EQ(code_of(ctl(run_dir(), {"evaluate", "999999999"}, "missing")), 78);
  EXPECT_FALSE(follower.wait(0ms).has_value());
}

TEST_F(EvaluationRequestTest, NextStartEvaluatesCheckpointOfFinishedRun) {
  // Two starts, each of which saves its last step: a step between can be skipped on slow storage.
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=360"}).code, 0);
  ASSERT_EQ(train(config, run_dir()).code, 0);
  ASSERT_EQ(code_of(evaluator(run_dir(), {"--once"})), 0);
  ASSERT_FALSE(fs::exists(run_dir() + "/eval/step-000000360.json"));
  ASSERT_EQ(code_of(ctl(run_dir(), {"evaluate", "360"}, "ctl")), 0);
  EXPECT_NE(log_of("ctl").find("no stoker-eval is running"), std::string::npos);
  std::ofstream(run_dir() + "/eval/requests/step-000000400.json") << "garbage";
  ASSERT_EQ(code_of(evaluator(run_dir(), {"--once"})), 0);
  EXPECT_TRUE(fs::exists(run_dir() + "/eval/step-000000360.json"));
  EXPECT_NE(log_of("stoker-eval").find("evaluation request invalid"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(run_dir() + "/eval/requests"));
}

}  // namespace
}  // namespace stoker::test
