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

  // The learning rate grows with every step, so that the loss becomes nonfinite only later.
  std::string diverging(const std::string& policy) {
    return write_config(R"(
data: {train: {format: synthetic, num_samples: 400, input_shape: [8], num_targets: 2}}
model: {name: mlp, hidden_sizes: [16]}
task: {name: regression}
eval: {datasets: []}
optimizer: {name: sgd, lr: 300}
scheduler: {name: constant, warmup_steps: 3000}
checkpoint: {save_every_steps: 5}
metrics: {log_every_steps: 5, tensorboard: false}
train: {max_steps: 200, micro_batch_size: 8, device: cpu, num_threads: 1, max_grad_norm: null, rollback_lr_factor: 0.001, on_nonfinite: )" +
                        policy + "}\n");
  }
};

TEST_F(NonfiniteLossTest, ExitsWith65AndPreservesPreviousCheckpoint) {
  EXPECT_EQ(train(diverging("fail"), run_dir()).code, 65);
  EXPECT_NE(trainer_log(run_dir()).find("not finite at step"), std::string::npos);
  EXPECT_GT(newest_step(run_dir()), 0u) << "it went wrong before the first checkpoint";
  EXPECT_LT(newest_step(run_dir()), 200u);
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
