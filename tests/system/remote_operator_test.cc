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
  expect_logged("stokerd", " training started ");
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

TEST_F(RemoteOperatorTest, ExplainsMissingLogs) {
  EXPECT_NE(
      output({"logs", "--evaluator"}, 78)
          .find(
              "stoker-eval.log: no such log; stoker-eval has not been started on this run, or its "
              "log was removed or not copied"),
      std::string::npos);
  EXPECT_NE(
      output({"logs", "--rank", "3"}, 78).find("no such log; the run directory has no rank 3"),
      std::string::npos);
}

// While it trains, and without an effect on what it trains on.
TEST_F(RemoteOperatorTest, ListsSamplesAsFromRunDirectory) {
  const std::string remote_list = output({"show-batch", "3"});
  Process local(joined({program("stokerctl"), "--run-dir", run_dir()}, {"show-batch", "3"}),
                path("local.out"));
  const auto exit = local.wait(60s);
  ASSERT_TRUE(exit && exit->code == 0) << log_of("local");
  EXPECT_EQ(remote_list, log_of("local"));
  EXPECT_NE(remote_list.find("step 3 of "), std::string::npos) << remote_list;
}

TEST_F(RemoteOperatorTest, PausesWithoutReleasingMemoryOfCpu) {
  EXPECT_NE(output({"pause", "--release"}).find("nothing was released: training on the CPU"),
            std::string::npos);
  EXPECT_NE(output({"--json", "status"}).find(R"("state":"paused")"), std::string::npos);
  output({"resume"});
}

TEST_F(RemoteOperatorTest, DryRunsChangeNothing) {
  EXPECT_NE(
      output({"set", "--dry-run", "optimizer.lr", "0.125"}).find("would set optimizer.lr 0.125"),
      std::string::npos);
  EXPECT_NE(output({"set", "--dry-run", "optimizer.lr", "fast"}, 64).find("optimizer.lr"),
            std::string::npos);
  EXPECT_EQ(output({"get", "optimizer.lr"}).find("live"), std::string::npos);
  write_config(small_config("log: {level: debug}\n"));
  const std::string changes = output({"reload", "--dry-run"});
  EXPECT_NE(changes.find("log.level  info    debug  now\n"), std::string::npos) << changes;
  EXPECT_EQ(output({"logs", "-n", "1000"}).find("configuration reloaded"), std::string::npos);
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
