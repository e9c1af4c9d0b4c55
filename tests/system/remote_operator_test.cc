// An operator who has only the control socket: logs, events, jobs, evaluation and reload.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;

class RemoteOperatorTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    write_config(small_config());
    trainer_.emplace(trainer(
        path("config.yaml"), run_dir(),
        {"--set", "train.max_steps=100000000", "--set", "checkpoint.save_every_steps=100000000"}));
    ASSERT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > 0; }));
  }
  Process remote(const std::vector<std::string>& words, const std::string& log) const {
    return Process(joined({program("stokerctl"), "--socket", run_dir() + "/control.sock"}, words),
                   path(log + ".out"));
  }
  // The output of a command that exits with `code`.
  std::string output(const std::vector<std::string>& words, int code = 0) {
    const std::string log = "remote" + std::to_string(++num_commands_);
    const auto exit = remote(words, log).wait(60s);
    EXPECT_TRUE(exit && exit->code == code) << words[0] << ": " << log_of(log);
    return log_of(log);
  }
  bool wait_for_output(const std::string& log, const std::string& words) const {
    return wait_until(
        60s, [&] { return text_if_exists(path(log + ".out")).find(words) != std::string::npos; });
  }

  std::optional<Process> trainer_;
  int num_commands_ = 0;
};

TEST_F(RemoteOperatorTest, ReadsLogAndFollowsEvents) {
  const std::string log = output({"logs", "-n", "1000"});
  EXPECT_TRUE(log.find(" daemon started ") != std::string::npos) << log;
  EXPECT_EQ(std::ranges::count(output({"logs", "-n", "2"}), '\n'), 2);
  Process follower = remote({"logs", "-n", "1", "-f"}, "follower");
  Process events = remote({"events", "checkpoint *"}, "events");
  ASSERT_TRUE(wait_until(60s, [&] {  // both are subscribed
    return output({"--json", "status"}).find("\"connections\":4") != std::string::npos;
  }));
  output({"checkpoint"});
  EXPECT_TRUE(wait_for_output("follower", "checkpoint saved"));
  EXPECT_TRUE(wait_for_output("follower", "control command command=checkpoint"));
  trainer_->signal(SIGTERM);
  for (Process* const each : {&follower, &events}) {
    const auto exit = each->wait(60s);
    ASSERT_TRUE(exit.has_value());
    EXPECT_EQ(exit->code, 0);
  }
  EXPECT_NE(log_of("events").find("checkpoint saved"), std::string::npos);
  EXPECT_EQ(log_of("events").find("control command"), std::string::npos);
}

TEST_F(RemoteOperatorTest, StartsJobEvaluatesAndReloads) {
  Process events = remote({"events"}, "events");
  ASSERT_TRUE(wait_until(60s, [&] {
    return output({"--json", "status"}).find("\"connections\":2") != std::string::npos;
  }));
  EXPECT_EQ(output({"checkpoint", "--no-wait"}), "started, job 1\n");
  EXPECT_TRUE(wait_for_output("events", "job started job=1 command=checkpoint"));
  EXPECT_TRUE(wait_for_output("events", "result=ok job=1"));
  const std::string step = std::to_string(newest_step(run_dir()));
  EXPECT_EQ(output({"evaluate", "99999999"}, 78).find("no checkpoint of step 99999999") ==
                std::string::npos,
            false);
  EXPECT_NE(output({"evaluate", step}).find("requested"), std::string::npos);
  const auto exit = evaluator(run_dir(), {"--once"}).wait(60s);
  ASSERT_TRUE(exit && exit->code == 0) << log_of("stoker-eval");
  EXPECT_NE(text_of(run_dir() + "/eval/outcomes.jsonl").find("request_id"), std::string::npos);
  write_config(small_config("log: {level: debug}\n"));
  output({"reload"});
  EXPECT_TRUE(wait_for_output("events", "configuration reloaded log.level=debug"));
  write_config("nonsense: 1\n");
  EXPECT_NE(output({"reload"}, 78).find("nonsense"), std::string::npos);
}

}  // namespace
}  // namespace stoker::test
