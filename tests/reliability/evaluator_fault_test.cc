// An evaluator that is missing, stopped or reads corrupt checkpoints: training is not affected, and
// the outcome of each checkpoint is recorded.
#include <signal.h>

#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "shared/run/eval_result.h"
#include "tests/reliability/tracer.h"
#include "tests/support/temporary_directory.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class EvaluatorFaultTest : public RunTest {
 protected:
  std::string status_of(const std::string& run) const {
    fs::remove(path("status.out"));
    (void)ctl(run, {"--json", "status"}, "status").wait(30s);
    return log_of("status");
  }
  static const std::vector<std::string>& long_run_options() {
    static const std::vector<std::string> kOptions{"--set", "train.max_steps=100000000",
                                                   "--set", "checkpoint.save_every_steps=500",
                                                   "--set", "checkpoint.keep_last=2"};
    return kOptions;
  }
};

TEST_F(EvaluatorFaultTest, DeletesCheckpointsWithoutWaitingForAbsentEvaluator) {
  const std::string config = write_config(small_config());
  Process trainer = this->trainer(config, run_dir(), long_run_options());
  ASSERT_TRUE(wait_until(60s, [&] { return newest_step(run_dir()) > 0; }));
  const std::string first = run_dir() + "/checkpoints/" + checkpoints(run_dir()).front();
  EXPECT_TRUE(wait_until(60s, [&] { return !fs::exists(first); })) << "it was not deleted";
  EXPECT_NE(status_of(run_dir()).find("\"evaluator\":{\"state\":\"not_started\""),
            std::string::npos)
      << log_of("status");
}

TEST_F(EvaluatorFaultTest, DoesNotBlockTrainingOrCheckpointsWhenEvaluatorIsStopped) {
  const std::string config = write_config(small_config("eval: {checkpoints: all}\n"));
  Process trainer = this->trainer(config, run_dir(), long_run_options());
  Process evaluator = this->evaluator(run_dir(), {"--follow"});
  ASSERT_TRUE(wait_until(60s, [&] { return fs::exists(run_dir() + "/eval/best.json"); }));
  evaluator.signal(SIGSTOP);
  const uint64_t before = newest_step(run_dir());
  EXPECT_TRUE(wait_until(60s, [&] { return newest_step(run_dir()) >= before + 2000; }))
      << "training is blocked by a stopped evaluator";
  EXPECT_EQ(log_of("stokerd").find("checkpoint write failed"), std::string::npos);
  // The evaluator holds one checkpoint in addition to those that retention keeps.
  EXPECT_TRUE(wait_until(60s, [&] { return checkpoints(run_dir()).size() <= 4; }));
  evaluator.signal(SIGCONT);
  const std::string records_path = run_dir() + "/metrics/eval.jsonl";
  // None, if it was stopped after it had written best.json.
  const size_t rows = text_if_exists(records_path).size();
  EXPECT_TRUE(wait_until(60s, [&] { return text_if_exists(records_path).size() > rows; }))
      << "it did not continue";
}

TEST_F(EvaluatorFaultTest, RecordsCorruptCheckpointAndEvaluatesOthers) {
  const std::string config = write_config(small_config("eval: {checkpoints: all}\n"));
  ASSERT_EQ(train(config, run_dir(),
                  {"--set", "train.max_steps=30", "--set", "checkpoint.save_every_steps=10"})
                .code,
            0);
  const std::vector<std::string> saved = checkpoints(run_dir());
  ASSERT_GE(saved.size(), 2u);  // the last one, and at least one of those before
  const std::string model = run_dir() + "/checkpoints/" + saved.front() + "/model.safetensors";
  std::string bytes = text_of(model);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_whole(model, bytes);
  const auto exit = evaluator(run_dir(), {"--once"}).wait(60s);
  ASSERT_TRUE(exit && exit->code == 65) << log_of("stoker-eval");
  const std::string outcomes = text_of(run_dir() + "/eval/outcomes.jsonl");
  EXPECT_NE(outcomes.find("\"outcome\":\"corrupt\""), std::string::npos) << outcomes;
  EXPECT_NE(outcomes.find("model.safetensors"), std::string::npos) << outcomes;
  EXPECT_FALSE(fs::exists(run_dir() + "/eval/" + saved.front() + ".json"));
  for (size_t i = 1; i < saved.size(); ++i)
    EXPECT_TRUE(fs::exists(run_dir() + "/eval/" + saved[i] + ".json")) << saved[i];
}

// inotify_add_watch succeeds but delivers no events, as on a network file system.
TEST_F(EvaluatorFaultTest, FindsNewCheckpointsByPollingWithoutInotifyEvents) {
  if (const auto why = untraceable_reason()) GTEST_SKIP() << *why;
  const std::string config =
      write_config(small_config("eval: {checkpoints: all, poll_interval_seconds: 0.1}\n"));
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=10"}).code, 0);
  const std::string name = checkpoints(run_dir()).back();
  fs::rename(run_dir() + "/checkpoints/" + name, path("later"));
  fs::rename(run_dir() + "/exit_status.json", path("exit_status.json"));
  std::jthread delayed([&] {
    EXPECT_TRUE(wait_until(60s, [&] {
      return text_if_exists(path("stoker-eval.out")).find("info    waiting ") != std::string::npos;
    }));
    fs::rename(path("later"), run_dir() + "/checkpoints/" + name);
    fs::rename(path("exit_status.json"), run_dir() + "/exit_status.json");
  });
  bool watched = false;
  const auto end = trace({program("stoker-eval"), "--run-dir", run_dir(), "--follow"},
                         path("stoker-eval.out"), run_dir(), [&](const FileCall& call) {
                           if (call.name != "inotify_add_watch") return Verdict::kContinue;
                           watched = true;
                           return Verdict::kSkip;
                         });
  EXPECT_TRUE(watched);
  EXPECT_EQ(end.code, 0);
  EXPECT_TRUE(fs::exists(run_dir() + "/eval/" + name + ".json")) << log_of("stoker-eval");
}

}  // namespace
}  // namespace stoker::test
