#include "evaluator/best_command.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "shared/base/file.h"

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;

class BestCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "stoker-best-XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(BestCommandTest, PassesCheckpointAsLastArgumentWithoutShell) {
  const std::string to = folder_ + "/said";
  const Status ran =
      run_best_command({"sh", "-c", "printf '%s|' \"$@\" > \"$0\"", to, "a b; $HOME"},
                       "/run/checkpoints/step-7", 10s, {});
  ASSERT_TRUE(ran.ok()) << ran.to_string();
  EXPECT_EQ(*read_file(to, 1000), "a b; $HOME|/run/checkpoints/step-7|");
}

TEST_F(BestCommandTest, ReportsProgramAndCauseOnFailure) {
  EXPECT_EQ(run_best_command({"sh", "-c", "exit 3"}, "x", 10s, {}).message(), "sh: exit code 3");
  EXPECT_EQ(run_best_command({"sh", "-c", "kill -9 $$"}, "x", 10s, {}).message(),
            "sh: killed by signal 9");
  const Status missing = run_best_command({"/no/such/program"}, "x", 10s, {});
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("/no/such/program"), std::string::npos);
}

TEST_F(BestCommandTest, KillsHungCommandWithItsChildren) {
  const Status ran = run_best_command(
      {"sh", "-c", "sleep 1000 & echo $! > \"$0\"; wait", folder_ + "/pid"}, "x", 300ms, {});
  EXPECT_EQ(ran.code(), StatusCode::kTimedOut);
}

TEST_F(BestCommandTest, RestoresDefaultSigpipeForCommand) {
  ::signal(SIGPIPE, SIG_IGN);  // as EvaluatorApp does
  EXPECT_EQ(run_best_command({"sh", "-c", "kill -PIPE $$"}, "x", 10s, {}).message(),
            "sh: killed by signal 13");
  ::signal(SIGPIPE, SIG_DFL);
}

TEST_F(BestCommandTest, CancelsCommandOnStop) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(run_best_command({"sh", "-c", "sleep 1000"}, "x", 1000s, stop.get_token()).code(),
            StatusCode::kCancelled);
}

}  // namespace
}  // namespace stoker::evaluator
