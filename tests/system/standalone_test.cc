// Single programs: an evaluator without a trainer, a trainer under a service manager.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "shared/run/eval_result.h"
#include "tests/daemon/service/notify_listener.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class StandaloneEvaluatorTest : public RunTest {
 protected:
  int evaluate(const std::vector<std::string>& more) const {
    fs::remove(path("stoker-eval.out"));
    const auto exit = evaluator(run_dir(), more).wait(60s);
    return exit ? exit->code : -1;
  }
};

TEST_F(StandaloneEvaluatorTest, EvaluatesRunOfKilledTrainer) {
  const std::string config = write_config(small_config("eval: {checkpoints: all}\n"));
  {
    Process trainer = this->trainer(config, run_dir(), {"--set", "train.max_steps=1000000"});
    ASSERT_TRUE(wait_until(60s, [&] { return checkpoints(run_dir()).size() >= 3; }));
    trainer.signal(SIGKILL);
    ASSERT_TRUE(trainer.wait(60s).has_value());
  }
  fs::remove(config);
  EXPECT_EQ(evaluate({"--once"}), 0);
  for (const auto& entry : checkpoints(run_dir()))
    EXPECT_TRUE(fs::exists(run_dir() + "/eval/" + entry + ".json")) << entry;
  EXPECT_TRUE(run::read_best(run::RunLayout(run_dir())).ok());
}

TEST_F(StandaloneEvaluatorTest, PrintsGivenCheckpointResultWithoutWriting) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir()).code, 0);
  const std::string named = run_dir() + "/checkpoints/" + checkpoints(run_dir()).front();
  EXPECT_EQ(evaluate({"--checkpoint", named}), 0);
  EXPECT_NE(log_of("stoker-eval").find("\"datasets\":{\"val\":{\"loss\":"), std::string::npos)
      << log_of("stoker-eval");
  EXPECT_FALSE(fs::exists(run_dir() + "/eval/outcomes.jsonl"));
  EXPECT_FALSE(fs::exists(run_dir() + "/metrics/eval.jsonl"));
}

TEST_F(StandaloneEvaluatorTest, ReportsInvalidArgumentsAndPaths) {
  EXPECT_EQ(evaluate({"--once"}), 78);
  EXPECT_NE(log_of("stoker-eval").find(run_dir()), std::string::npos);
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir()).code, 0);
  EXPECT_EQ(evaluate({"--checkpoint", path("nowhere")}), 78);
  EXPECT_NE(log_of("stoker-eval").find(path("nowhere")), std::string::npos);
  EXPECT_EQ(evaluate({"--generate", "10"}), 78);  // not a language model
  EXPECT_EQ(evaluate({"--once", "--follow"}), 64);
}

class SystemdServiceTest : public RunTest {};

TEST_F(SystemdServiceTest, SendsReadyStatusWatchdogAndStoppingToSystemd) {
  service::NotifyListener manager(service::NotifyListener::Kind::kPath);
  ::setenv("NOTIFY_SOCKET", manager.name().c_str(), 1);
  const std::string config = write_config(small_config());
  // With checkpoints by steps, a slow disk would keep the state at "saving".
  Process trainer = this->trainer(
      config, run_dir(),
      {"--set", "train.max_steps=1000000", "--set", "checkpoint.save_every_steps=null"});
  ::unsetenv("NOTIFY_SOCKET");
  std::string heard;
  const auto hears = [&](const std::string& words) {
    return wait_until(30s, [&] {
      for (const std::string& message : manager.take()) heard += message + "\n";
      return heard.find(words) != std::string::npos;
    });
  };
  EXPECT_TRUE(hears("EXTEND_TIMEOUT_USEC=")) << heard;
  EXPECT_TRUE(hears("READY=1")) << heard;
  EXPECT_TRUE(hears("STATUS=training  step ")) << heard;
  EXPECT_TRUE(hears("WATCHDOG=1")) << heard;
  heard.clear();
  std::ofstream(config) << "train: {max_stepz: 1}\n";
  trainer.signal(SIGHUP);
  EXPECT_TRUE(hears("RELOADING=1\nMONOTONIC_USEC=")) << heard;
  heard.erase(0, heard.find("RELOADING=1"));
  EXPECT_TRUE(hears("READY=1")) << heard;
  EXPECT_EQ(heard.find("STOPPING=1"), std::string::npos);
  trainer.signal(SIGTERM);
  EXPECT_TRUE(hears("STOPPING=1")) << heard;
  const auto exit = trainer.wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0);
  EXPECT_NE(log_of("stokerd").find("configuration reload rejected"), std::string::npos);
}

}  // namespace
}  // namespace stoker::test
