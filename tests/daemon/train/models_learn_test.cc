// Models learn: a few steps of the trainer on made data lower the loss by more than chance does, and
// what is saved then is what a second session goes on from. Every kind of model that reads vectors or
// pictures, those in files of the user's among them; learning_test.cc has those of sequences.
#include <cmath>

#include "shared/config/load_config.h"
#include "tests/daemon/train/trainer_session.h"
#include "tests/shared/model/script_files.h"

namespace stoker::train {
namespace {

struct Learner {
  std::string name;
  std::string features;
  std::string model;  // with FOLDER for where its file is
  double lr = 0.002;
  uint64_t steps = 8;
  int batch = 8;
};
void PrintTo(const Learner& learner, std::ostream* out) { *out << learner.name; }

class ModelsLearn : public TrainerTest, public testing::WithParamInterface<Learner> {
 protected:
  config::Config config(uint64_t steps) const {
    const Learner& learner = GetParam();
    std::string text =
        "data: {train: {kind: synthetic, samples: 32, classes: 2, noise: 0.3, features: " +
        learner.features + "}}\nmodel: " + learner.model +
        "\ntask: {kind: classification}\noptimizer: {kind: adam, lr: " +
        std::to_string(learner.lr) +
        "}\nschedule: {kind: constant, warmup_steps: 0}\ncheckpoint: {every_steps: 0, "
        "every_seconds: 0}\nmetrics: {every_steps: 1}\ntrain: {batch: " +
        std::to_string(learner.batch) + ", steps: " + std::to_string(steps) + "}\n";
    const std::string folder = "FOLDER";  // in the model's settings
    if (const size_t at = text.find(folder); at != std::string::npos)
      text.replace(at, folder.size(), root_);
    const auto parsed = config::parse_config(text, GetParam().name, {});
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    return parsed.ok() ? *parsed : config::Config{};
  }
};

TEST_P(ModelsLearn, InAFewStepsAndGoOnFromWhatWasSaved) {
  model::test::write_script(root_ + "/linear.pt", {.inputs = 8, .outputs = 2});
  {
    Session run(config(GetParam().steps), root_);
    const auto outcome = run.train();
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    ASSERT_EQ(run.rows_.size(), GetParam().steps);
    for (const auto& row : run.rows_) EXPECT_TRUE(std::isfinite(row.loss)) << row.step;
    // At chance the loss is ln 2.
    EXPECT_LT(run.rows_.back().loss, 0.6 * run.rows_.front().loss);
  }
  Session run(config(GetParam().steps + 1), root_);
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  ASSERT_EQ(run.rows_.size(), 1u);
  EXPECT_LT(run.rows_.back().loss, 0.6);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ModelsLearn,
    testing::Values(
        Learner{"mlp", "[8]", "{kind: mlp, hidden: [32]}", 0.02},
        Learner{"lenet", "[1, 16, 16]", "{kind: lenet}", 0.002, 14},
        Learner{"resnet", "[3, 16, 16]", "{kind: resnet, layers: 8}"},
        Learner{"alexnet", "[1, 63, 63]", "{kind: alexnet, width: 64, dropout: 0}", 0.0005, 14},
        Learner{"vit", "[1, 16, 16]",
                "{kind: vit, layers: 2, heads: 2, width: 32, patch_size: 4, dropout: 0.1}", 0.002,
                16},
        Learner{"layers", "[1, 16, 16]",
                "{kind: layers, stack: [{kind: conv, channels: 8, kernel: 3}, {kind: relu}, {kind: "
                "dropout, part: 0.1}, {kind: adaptive_avg_pool, size: 4}, {kind: flatten}, {kind: "
                "linear}]}",
                0.01, 16},
        Learner{"vgg", "[1, 32, 32]", "{kind: vgg, layers: 11, width: 512, dropout: 0}", 0.0002,
                22},
        Learner{"vgg_with_norms", "[1, 32, 32]",
                "{kind: vgg, layers: 11, batch_norm: true, width: 16, dropout: 0.1}"},
        // Its last norms see a pixel of each picture: more of these, for steps that go one way.
        Learner{"inception_v3", "[1, 75, 75]",
                "{kind: inception_v3, aux_logits: false, dropout: 0}", 0.0005, 12, 16},
        Learner{"plugin", "[8]",
                "{kind: plugin, path: " STOKER_PLUGINS
                "/gated_mlp.so, parameters: {width: 16, blocks: 1, dropout: 0.1}}",
                0.02},
        Learner{"torchscript", "[8]", "{kind: torchscript, path: FOLDER/linear.pt}", 0.1}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stoker::train
