// What a good text comes to.
#include <filesystem>

#include "tests/shared/config/config_text.h"
#include "tests/support/temporary_directory.h"

namespace stoker::config::test {
namespace {

TEST(Settings, TheLeastTextGivesTheDefaults) {
  Config expected;
  expected.data["train"].path = "corpus.txt";
  expected.data["train"].context = expected.model.context;
  expected.eval.sets = {};
  EXPECT_EQ(good(kData), expected);
}

TEST(Settings, EverySectionIsRead) {
  const Config config = good(
      "run: {dir: runs/x, seed: 18446744073709551615, deterministic: true}\n"
      "data:\n"
      "  train: {kind: tokens, path: t.bin, dtype: uint32, split: [0, 0.5], context: 64}\n"
      "  held-out_2: {kind: text, path: b.txt, glob: \"*.h\"}\n"
      "feed: {readers: 3, processes: 2, isolation: thread, slots: 4, shuffle: off,\n"
      "       on_bad_sample: stop, bad_sample_limit: 0}\n"
      "model: {kind: gpt, layers: 2, width: 64, heads: 4, context: 128, vocab: 50257,\n"
      "        dropout: 0.1, init_from: a.safetensors, freeze: [\"tok.*\", pos.weight]}\n"
      "task: {kind: language_model}\n"
      "optimizer: {kind: adam, lr: 1e-3, betas: [0.8, 0.9], eps: 1.0e-6, weight_decay: 0,\n"
      "            clip_norm: 0}\n"
      "schedule: {kind: step, warmup_steps: 5, every_steps: 7, factor: 0.5}\n"
      "train: {steps: 9, batch: 2, device: \"cuda:1\", precision: bf16, accumulate: 4,\n"
      "        threads: 6}\n"
      "checkpoint: {every_steps: 0, every_seconds: 1.5, keep_last: 2, keep_every_steps: 5,\n"
      "             keep_best: 0, on_failure: stop}\n"
      "eval: {sets: [held-out_2], policy: all, batch: 3, threads: 2, max_samples: 100,\n"
      "       timeout_seconds: 2, tries: 1}\n"
      "metrics: {every_steps: 1, tensorboard: false}\n"
      "control: {socket: off, operators: [alice, \"1001\"]}\n"
      "log: {level: debug}\n");
  EXPECT_EQ(config.run.seed, 18446744073709551615u);
  EXPECT_TRUE(config.run.deterministic);
  ASSERT_EQ(config.data.size(), 2u);
  EXPECT_EQ(config.data.at("train").dtype, "uint32");
  EXPECT_EQ(config.data.at("train").split, (std::vector<double>{0.0, 0.5}));
  EXPECT_EQ(config.data.at("train").context, 64);
  EXPECT_EQ(config.data.at("held-out_2").glob, "*.h");
  EXPECT_EQ(config.feed.isolation, Isolation::kThread);
  EXPECT_EQ(config.feed.on_bad_sample, OnBadSample::kStop);
  EXPECT_EQ(config.model.freeze, (std::vector<std::string>{"tok.*", "pos.weight"}));
  EXPECT_EQ(config.optimizer.kind, OptimizerKind::kAdam);
  EXPECT_EQ(config.optimizer.lr, 1e-3);
  EXPECT_EQ(config.schedule.factor, 0.5);
  EXPECT_EQ(config.train.device, "cuda:1");
  EXPECT_EQ(config.checkpoint.every_seconds, 1.5);
  EXPECT_EQ(config.eval.sets, (std::vector<std::string>{"held-out_2"}));
  EXPECT_EQ(config.control.socket, "off");
  EXPECT_EQ(config.control.operators, (std::vector<std::string>{"alice", "1001"}));
  EXPECT_EQ(config.log.level, "debug");
}

TEST(Settings, NumbersMayBeWrittenInEveryUsualWay) {
  const Config config =
      good(kData + "optimizer: {lr: +1e-3, eps: 1E-9, weight_decay: .5}\ntrain: {steps: +20}\n");
  EXPECT_EQ(config.optimizer.lr, 1e-3);
  EXPECT_EQ(config.optimizer.eps, 1e-9);
  EXPECT_EQ(config.optimizer.weight_decay, 0.5);
  EXPECT_EQ(config.train.steps, 20u);
}

TEST(Settings, TextThatLooksLikeANumberStaysText) {
  const Config config = good(kData + "run: {dir: 007}\ncontrol: {socket: \"null\"}\n");
  EXPECT_EQ(config.run.dir, "007");
  EXPECT_EQ(config.control.socket, "null");
}

TEST(Settings, WindowsLinesAndAByteOrderMarkAreRead) {
  const Config config =
      good("\xef\xbb\xbf" + std::string("data: {train: {kind: text, path: a}}\r\n") +
           "train:\r\n  steps: 5\r\n  batch: 3\r\n");
  EXPECT_EQ(config.train.steps, 5u);
  EXPECT_EQ(config.train.batch, 3);
}

TEST(Settings, ASectionOfWhichAllIsCommentedOutIsEmpty) {
  EXPECT_EQ(good(kData + "train:\n  # steps: 5\nlog: {}\n"), good(kData));
}

TEST(Settings, TheOrderOfKeysDoesNotMatter) {
  EXPECT_EQ(good(kPictures + "model: {layers: 20, kind: resnet}\n"),
            good("model: {kind: resnet, layers: 20}\n" + kPictures));
}

// ---- Defaults that depend on other settings

TEST(Settings, AnOptimizerThatIsNotAdamHasItsOwnRateAndNoDecay) {
  const Config sgd = good(kData + "optimizer: {kind: sgd}\n");
  EXPECT_EQ(sgd.optimizer.lr, 0.01);
  EXPECT_EQ(sgd.optimizer.weight_decay, 0.0);
  const Config adam = good(kData + "optimizer: {kind: adam}\n");
  EXPECT_EQ(adam.optimizer.lr, 3.0e-4);
  EXPECT_EQ(adam.optimizer.weight_decay, 0.0);
  const Config given = good(kData + "optimizer: {kind: sgd, lr: 0.0003, weight_decay: 0.1}\n");
  EXPECT_EQ(given.optimizer.lr, 3.0e-4);
  EXPECT_EQ(given.optimizer.weight_decay, 0.1);
}

TEST(Settings, TheLastRateFollowsTheFirst) {
  EXPECT_EQ(good(kData + "optimizer: {lr: 0.01}\n").schedule.min_lr, 0.001);
  EXPECT_EQ(good(kData + "optimizer: {lr: 0.01}\nschedule: {min_lr: 0}\n").schedule.min_lr, 0.0);
  EXPECT_EQ(good(kData).schedule.min_lr, 3.0e-5);
}

TEST(Settings, AResnetHas18LayersUnlessGiven) {
  EXPECT_EQ(good(kPictures + "model: {kind: resnet}\n").model.layers, 18);
  EXPECT_EQ(good(kPictures + "model: {kind: resnet, layers: 20}\n").model.layers, 20);
}

TEST(Settings, AnAlexnetOrVggIsTorchvisionsUnlessGiven) {
  for (const std::string kind : {"alexnet", "vgg"}) {
    const ModelConfig usual = good(kPictures + "model: {kind: " + kind + "}\n").model;
    EXPECT_EQ(usual.width, 4096) << kind;
    EXPECT_EQ(usual.dropout, 0.5) << kind;
    const ModelConfig other =
        good(kPictures + "model: {kind: " + kind + ", width: 192, dropout: 0}\n").model;
    EXPECT_EQ(other.width, 192) << kind;
    EXPECT_EQ(other.dropout, 0.0) << kind;
  }
  EXPECT_EQ(good(kPictures + "model: {kind: vgg}\n").model.layers, 16);
}

TEST(Settings, AVitIsTorchvisionsBaseUnlessGiven) {
  const ModelConfig usual = good(kPictures + "model: {kind: vit}\n").model;
  EXPECT_EQ(usual.layers, 12);
  EXPECT_EQ(usual.heads, 12);
  EXPECT_EQ(usual.width, 768);
  EXPECT_EQ(usual.patch_size, 16);
  EXPECT_EQ(usual.dropout, 0.0);
  EXPECT_EQ(good(kPictures + "model: {kind: vit, layers: 4, heads: 3, width: 48}\n").model.layers,
            4);
  EXPECT_EQ(good(kPictures + "model: {kind: inception_v3}\n").model.dropout, 0.5);
}

TEST(Settings, ASetCalledValidIsEvaluatedUnasked) {
  const std::string both = "data: {train: {path: a}, valid: {path: b}}\n";
  EXPECT_EQ(good(both).eval.sets, (std::vector<std::string>{"valid"}));
  EXPECT_EQ(good(both + "eval: {sets: []}\n").eval.sets, std::vector<std::string>{});
  EXPECT_EQ(good("data: {train: {path: a}, test: {path: b}}\n").eval.sets,
            std::vector<std::string>{});
}

TEST(Settings, ASamplesContextIsTheModelsUnlessGiven) {
  const Config config = good(
      "data: {train: {path: a}, valid: {path: b, context: 32}}\n"
      "model: {context: 64}\n");
  EXPECT_EQ(config.data.at("train").context, 64);
  EXPECT_EQ(config.data.at("valid").context, 32);
}

// ---- Files

TEST(LoadConfig, ReadsAFile) {
  const stoker::test::TemporaryDirectory directory;
  const std::string path = directory / "a.yaml";
  stoker::test::write_whole(path, kData + "train: {steps: 3}\n");
  const auto config = load_config(path, {"train.batch=4"});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->train.steps, 3u);
  EXPECT_EQ(config->train.batch, 4);
}

TEST(LoadConfig, NamesTheFileThatIsNotThere) {
  const stoker::test::TemporaryDirectory directory;
  const auto config = load_config(directory / "none.yaml", {});
  EXPECT_EQ(config.status().code(), Code::kNotFound);
  EXPECT_THAT(config.status().message(), testing::HasSubstr("none.yaml"));
}

TEST(LoadConfig, RefusesADirectory) {
  const stoker::test::TemporaryDirectory directory;
  EXPECT_FALSE(load_config(directory.path(), {}).ok());
}

TEST(LoadConfig, RefusesAFileOver1MiBBeforeReadingIt) {
  const stoker::test::TemporaryDirectory directory;
  const std::string path = directory / "big.yaml";
  stoker::test::write_whole(path, kData);
  std::filesystem::resize_file(path, uint64_t{1} << 40);  // sparse
  const auto config = load_config(path, {});
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.status().message(), testing::HasSubstr("big.yaml"));
}

}  // namespace
}  // namespace stoker::config::test
