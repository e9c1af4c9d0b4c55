// A run whose learning rate grows until its loss is not finite.
#include <filesystem>

#include <gtest/gtest.h>

#include "shared/run/run_state.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;

class NonfiniteLossTest : public RunTest {
 protected:
  static std::string trainer_log(const std::string& run) {
    return text_of(run + "/logs/stokerd.log");
  }

  // 100 steps with a learning rate of 0.02, and then of 20. With that one, the error of the output's bias alone
  // is multiplied by -19 with each step (the loss is its square, the mean over two targets), and its
  // square exceeds the range of float32 after 16 steps at most: before the next checkpoint, whatever the
  // rounding. 0.001 times both rates are small again.
  std::string diverging(const std::string& policy) {
    return write_config(R"(
data: {train: {format: synthetic, num_samples: 400, input_shape: [8], num_targets: 2}}
model: {name: mlp, hidden_sizes: [16]}
task: {name: regression}
eval: {datasets: []}
optimizer: {name: sgd, lr: 0.02}
scheduler: {name: step, warmup_steps: 0, step_size: 100, gamma: 1000}
checkpoint: {save_every_steps: 25}
metrics: {log_every_steps: 5, tensorboard: false}
train: {max_steps: 200, micro_batch_size: 8, device: cpu, num_threads: 1, max_grad_norm: null, rollback_lr_factor: 0.001, on_nonfinite: )" +
                        policy + "}\n");
  }
};

TEST_F(NonfiniteLossTest, ExitsWith65AndPreservesPreviousCheckpoint) {
  EXPECT_EQ(train(diverging("fail"), run_dir()).code, 65);
  EXPECT_NE(trainer_log(run_dir()).find("not finite at step"), std::string::npos);
  // The last of before; a slow disk skips some.
  EXPECT_GE(newest_step(run_dir()), 25u);
  EXPECT_LE(newest_step(run_dir()), 100u);
}

TEST_F(NonfiniteLossTest, RollsBackWithReducedLearningRateAndFinishes) {
  const std::string config = diverging("rollback");
  ASSERT_EQ(train(config, run_dir()).code, 0) << trainer_log(run_dir());
  EXPECT_NE(trainer_log(run_dir()).find("run rolled back"), std::string::npos);
  EXPECT_EQ(newest_step(run_dir()), 200u);
  EXPECT_EQ(deterministic_records(run_dir()).size(), 40u) << "each step must be reported once";
  const auto manifest = text_of(run_dir() + "/checkpoints/step-000000200/manifest.json");
  EXPECT_NE(manifest.find("rollbacks"), std::string::npos);
  EXPECT_EQ(trainer_log(run_dir()).find("last checkpoint "), std::string::npos)
      << "a rolled back checkpoint is not missing";
}

}  // namespace
}  // namespace stoker::test
