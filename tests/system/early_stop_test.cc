// The evaluator detects that the monitored metric no longer improves, and the trainer ends the run.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "shared/run/eval_result.h"
#include "shared/run/run_state.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;

class EarlyStopRunTest : public RunTest {
 protected:
  static run::ExitStatus end_of(const std::string& run) {
    const auto state = run::read_run_state(run::RunLayout(run));
    EXPECT_EQ(state.phase, run::RunState::Phase::kEnded);
    return state.end.value_or(run::ExitStatus{});
  }
};

TEST_F(EarlyStopRunTest, FinishesRunWithCheckpointAndDoesNotRestartIt) {
  const std::string best = path("best.txt");
  const std::string config =
      write_config(text_config("eval: {early_stopping: {stopping_threshold: 1000}, batch_size: 16, "
                               "on_best_command: [sh, -c, 'echo \"$1\" >> " +
                               best + "', hook]}\n"));
  const std::vector<std::string> endless = {"--set", "train.max_steps=1000000"};
  Process evaluator = this->evaluator(run_dir(), {"--follow"});
  Process trainer = this->trainer(config, run_dir(), endless);
  const auto trained = trainer.wait(90s);
  ASSERT_TRUE(trained.has_value());
  EXPECT_EQ(trained->code, 0);
  const auto evaluated = evaluator.wait(60s);
  ASSERT_TRUE(evaluated.has_value()) << "the evaluator waits for a run that has ended";
  EXPECT_EQ(evaluated->code, 0);
  const run::ExitStatus end = end_of(run_dir());
  EXPECT_EQ(end.outcome, run::RunOutcome::kFinished);
  EXPECT_NE(end.reason.find("stopped early: val/loss is "), std::string::npos) << end.reason;
  const uint64_t step = newest_step(run_dir());
  EXPECT_EQ(step, end.step) << "the last step was not saved";
  EXPECT_NE(text_of(best).find(run_dir() + "/checkpoints/step-"), std::string::npos)
      << "eval.on_best_command was not run";

  EXPECT_EQ(train(config, run_dir(), endless).code, 0);
  EXPECT_EQ(newest_step(run_dir()), step) << "a run that was stopped early continued";
  EXPECT_EQ(end_of(run_dir()).step, step);

  std::filesystem::rename(run_dir() + "/checkpoints", path("unmounted"));
  EXPECT_EQ(train(config, run_dir(), endless).code, 65) << "its result is missing";
  std::filesystem::rename(path("unmounted"), run_dir() + "/checkpoints");

  EXPECT_EQ(train(config, run_dir(),
                  {"--set", "train.max_steps=" + std::to_string(step + 5), "--set",
                   "eval.early_stopping.stopping_threshold=null"})
                .code,
            0);
  EXPECT_EQ(newest_step(run_dir()), step + 5) << "another rule does not continue it";
}

// The results of step 20 are of a branch that the run leaves: they neither end it nor are the best.
TEST_F(EarlyStopRunTest, ContinuesOnBranchOfEarlierCheckpoint) {
  const std::string data = "{format: synthetic, num_samples: 64, input_shape: [4], num_classes: 2}";
  const std::string config =
      write_config("data: {train: " + data + ", val: " + data +
                   "}\nmodel: {name: mlp, hidden_sizes: [4]}\ntask: {name: classification}\n"
                   "train: {max_steps: 20, micro_batch_size: 8, device: cpu, num_threads: 1}\n"
                   "checkpoint: {save_every_steps: 10, keep_last: 9}\n"
                   "eval: {checkpoints: latest, early_stopping: {stopping_threshold: 1000}}\n");
  const auto evaluate = [this] {
    Process once = evaluator(run_dir(), {});
    EXPECT_EQ(code_of(once), 0);
  };
  const run::RunLayout layout(run_dir());
  ASSERT_EQ(train(config, run_dir()).code, 0);
  evaluate();
  ASSERT_TRUE(std::filesystem::exists(layout.early_stop_file()));
  const std::vector<std::string> longer = {"--set", "train.max_steps=30"};
  EXPECT_EQ(train(config, run_dir(), longer).code, 0);
  EXPECT_EQ(newest_step(run_dir()), 20u) << "the run was stopped early";

  EXPECT_EQ(train(config, run_dir(),
                  {"--set", "train.max_steps=18", "--resume",
                   layout.checkpoints_dir() + "/step-000000010"})
                .code,
            0);
  EXPECT_EQ(newest_step(run_dir()), 18u) << "a result of a former branch ended the run";
  EXPECT_EQ(run::read_best(layout).status().code(), StatusCode::kNotFound);
  evaluate();
  EXPECT_EQ(run::read_best(layout)->step, 18u);
  Process exported =
      ctl(run_dir(), {"export", "best", "--format", "safetensors", "--output", path("best.st")},
          "export");
  EXPECT_EQ(code_of(exported), 0) << log_of("export");
}

}  // namespace
}  // namespace stoker::test
