// A few trainer steps on synthetic data must reduce the loss clearly, and a second session must
// resume from the checkpoint. Covers all models for vectors and images, including models loaded
// from files; sequence models are compared with PyTorch (tests/parity).
#include <cmath>

#include "shared/config/load_config.h"
#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

struct Learner {
  std::string name;
  std::string features;
  std::string model;
  double lr = 0.002;
  uint64_t steps = 8;
  int batch = 8;
};
void PrintTo(const Learner& learner, std::ostream* out) { *out << learner.name; }

class TrainerModelsTest : public TrainerTest, public testing::WithParamInterface<Learner> {
 protected:
  config::Config config(uint64_t steps) const {
    const Learner& learner = GetParam();
    const std::string text =
        "data: {train: {format: synthetic, num_samples: 32, num_classes: 2, noise_std: 0.3, "
        "input_shape: " +
        learner.features + "}}\nmodel: " + learner.model +
        "\ntask: {name: classification}\noptimizer: {name: adam, lr: " +
        std::to_string(learner.lr) +
        "}\nscheduler: {name: constant, warmup_steps: 0}\ncheckpoint: {save_every_steps: null, "
        "save_every_seconds: null}\nmetrics: {log_every_steps: 1}\ntrain: {micro_batch_size: " +
        std::to_string(learner.batch) + ", max_steps: " + std::to_string(steps) + "}\n";
    const auto parsed = config::parse_config(text, GetParam().name, {});
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    return parsed.ok() ? *parsed : config::Config{};
  }
};

TEST_P(TrainerModelsTest, LearnsAndResumesFromCheckpoint) {
  {
    Session run(config(GetParam().steps), root_);
    const auto outcome = run.train();
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    ASSERT_EQ(run.rows_.size(), GetParam().steps);
    for (const auto& row : run.rows_) EXPECT_TRUE(std::isfinite(row.loss)) << row.step;
    // The loss of random guessing is ln 2.
    EXPECT_LT(run.rows_.back().loss, 0.6 * run.rows_.front().loss);
  }
  Session run(config(GetParam().steps + 1), root_);
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  ASSERT_EQ(run.rows_.size(), 1u);
  EXPECT_LT(run.rows_.back().loss, 0.6);
}

INSTANTIATE_TEST_SUITE_P(
    Models, TrainerModelsTest,
    testing::Values(
        Learner{"mlp", "[8]", "{name: mlp, hidden_sizes: [32]}", 0.02},
        Learner{"lenet", "[1, 16, 16]", "{name: lenet5}", 0.002, 14},
        Learner{"resnet", "[3, 16, 16]", "{name: resnet8}"},
        Learner{"alexnet", "[1, 63, 63]", "{name: alexnet, hidden_dim: 64, dropout: 0}", 0.0005,
                14},
        Learner{
            "vit", "[1, 16, 16]",
            "{name: vit, num_layers: 2, num_heads: 2, hidden_dim: 32, patch_size: 4, dropout: 0.1}",
            0.002, 16},
        Learner{"layers", "[1, 16, 16]",
                "{name: sequential, layers: [{conv2d: {out_channels: 8, kernel_size: 3}}, relu, "
                "{dropout: {p: 0.1}}, {adaptive_avg_pool2d: {output_size: 4}}, flatten, linear]}",
                0.01, 16},
        Learner{"vgg_with_norms", "[1, 32, 32]", "{name: vgg11_bn, hidden_dim: 16, dropout: 0.1}"},
        Learner{"plugin", "[8]",
                "{name: plugin, path: " STOKER_PLUGINS
                "/gated_mlp.so, args: {width: 16, blocks: 1, dropout: 0.1}}",
                0.02}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stoker::train
