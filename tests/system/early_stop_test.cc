// The evaluator detects that the monitored metric no longer improves, and the trainer ends the run.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace stoker::test
