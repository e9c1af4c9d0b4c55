// A run whose learning rate grows until its loss is no number any more.
#include <filesystem>

#include <gtest/gtest.h>

#include "shared/run/run_state.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;

class NonFinite : public RunFixture {
 protected:
  static std::string trainer_log(const std::string& run) {
    return text_of(run + "/logs/stokerd.log");
  }

  // The learning rate grows with every step: what goes well at the beginning goes wrong later.
  std::string diverging(const std::string& policy) {
    return write_config(R"(
data: {train: {kind: synthetic, samples: 400, features: [8], targets: 2}}
model: {kind: mlp, hidden: [16]}
task: {kind: regression}
eval: {sets: []}
optimizer: {kind: sgd, lr: 300, clip_norm: 0}
schedule: {kind: constant, warmup_steps: 3000}
checkpoint: {every_steps: 5}
metrics: {every_steps: 5, tensorboard: false}
train: {steps: 200, batch: 8, device: cpu, threads: 1, rollback_lr: 0.001, on_nonfinite: )" +
                        policy + "}\n");
  }
};

TEST_F(NonFinite, FaultRow35StopsWith65AndKeepsTheCheckpointBefore) {
  EXPECT_EQ(train(diverging("stop"), run_dir()).code, 65);
  EXPECT_NE(trainer_log(run_dir()).find("not a number at step"), std::string::npos);
  EXPECT_GT(newest_step(run_dir()), 0u) << "it went wrong before the first checkpoint";
  EXPECT_LT(newest_step(run_dir()), 200u);
}

TEST_F(NonFinite, FaultRow35GoesBackToTheLastCheckpointWithALowerRateAndFinishes) {
  const std::string config = diverging("rollback");
  ASSERT_EQ(train(config, run_dir()).code, 0) << trainer_log(run_dir());
  EXPECT_NE(trainer_log(run_dir()).find("run rolled back"), std::string::npos);
  EXPECT_EQ(newest_step(run_dir()), 200u);
  EXPECT_EQ(decided_rows(run_dir()).size(), 40u) << "a step is reported once";
  const auto manifest = text_of(run_dir() + "/checkpoints/step-000000200/manifest.json");
  EXPECT_NE(manifest.find("rollbacks"), std::string::npos);
}

}  // namespace
}  // namespace stoker::test
