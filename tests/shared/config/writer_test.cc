// to_yaml() and diff_configs().
#include <map>

#include "tests/shared/config/config_text.h"
#include "tests/shared/config/random_config.h"

namespace stoker::config::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> changes_between(const Config& previous, const Config& current) {
  std::vector<std::string> lines;
  for (const SettingChange& change : diff_configs(previous, current))
    lines.push_back(change.text());
  return lines;
}

TEST(WriterTest, RestoresEveryConfigFromItsText) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const Config config = random_config(random);
    const std::string text = to_yaml(config);
    const auto again = parsed(text);
    ASSERT_TRUE(again.ok()) << again.status().message() << "\nin:\n" << text;
    ASSERT_EQ(*again, config) << testing::PrintToString(changes_between(config, *again))
                              << "\nin:\n"
                              << text;
    ASSERT_EQ(to_yaml(*again), text);
    ASSERT_EQ(digest(*again), digest(config));
  }
}

TEST(WriterTest, CoversEveryVariantWithRandomConfigs) {
  std::mt19937_64 random(1);
  std::map<std::string, int> seen;
  for (int i = 0; i < 4000; ++i) {
    Config config = random_config(random);
    for (const Section& section : all_sections(config)) {
      if (section.variants.names.empty()) continue;
      const std::string key = section.key.starts_with("data.") ? "data" : section.key;
      ++seen[key + '.' + std::string(section.variants.names[section.variants.selected])];
    }
    for (const auto& [name, dataset] : config.data) {
      if (dataset.transforms() == nullptr) continue;
      for (const Transform& transform : *dataset.transforms())
        ++seen["transform " + std::to_string(transform.index())];
    }
    if (const auto* const sequential = std::get_if<SequentialConfig>(&config.model.arch))
      for (const Layer& layer : sequential->layers)
        ++seen["layer " + std::to_string(layer.index())];
  }
  Config config;
  config.data["train"] = {};
  for (const Section& section : all_sections(config))
    for (const std::string_view name : section.variants.names)
      EXPECT_THAT(seen, Contains(testing::Key((section.key == "data.train" ? "data" : section.key) +
                                              '.' + std::string(name))));
  for (size_t i = 0; i < std::variant_size_v<Transform>; ++i)
    EXPECT_THAT(seen, Contains(testing::Key("transform " + std::to_string(i))));
  for (size_t i = 0; i < std::variant_size_v<LayerVariant>; ++i)
    EXPECT_THAT(seen, Contains(testing::Key("layer " + std::to_string(i))));
}

TEST(WriterTest, WritesOnlyKeysOfSelectedVariant) {
  const std::string text = to_yaml(valid_config(kImageData + "model: {name: mlp}\n"));
  EXPECT_THAT(text, HasSubstr("\nmodel:\n  name: mlp\n  hidden_sizes: [1024]\n  in_features: null\n"
                              "  dropout: 0\n  num_classes: null\n  init: {}\n  pretrained: null\n"
                              "  lora: null\n"
                              "  freeze: []\n  unfreeze_at_step: null\ntask:\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("embed_dim")));
  EXPECT_THAT(text, testing::StartsWith("run:\n  dir: runs/demo\n  seed: 1\n"));
  EXPECT_THAT(text, testing::EndsWith("\nlog:\n  level: info\n  format: text\n"));
}

TEST(WriterTest, WritesTrainingDataFirst) {
  const std::string text =
      to_yaml(valid_config("data: {a: {format: text, path: x}, train: {format: text, path: z}}\n"));
  EXPECT_THAT(text, HasSubstr("\ndata:\n  train:\n    format: text\n    path: z\n"));
  EXPECT_LT(text.find("  train:"), text.find("  a:"));
}

TEST(WriterTest, WritesNestedMappingsAndTaggedListsAsBlocks) {
  const std::string text = to_yaml(valid_config(
      "data:\n"
      "  train:\n"
      "    format: image_folder\n"
      "    path: a\n"
      "    transforms: [resize: {size: 256}, center_crop: {size: 224}, random_horizontal_flip]\n"
      "    cache: {type: decoded}\n"
      "    batch_transforms: [random_choice: [mixup, cutmix: {alpha: 0.5}]]\n"
      "task: {name: classification}\n"
      "model: {name: resnet18}\n"
      "eval: {generate: null, early_stopping: {patience: 3}}\n"));
  EXPECT_THAT(text, HasSubstr("    transforms:\n"
                              "      - resize: {size: [256], interpolation: bilinear}\n"
                              "      - center_crop: {size: [224]}\n"
                              "      - random_horizontal_flip: {p: 0.5}\n"
                              "    cache:\n"
                              "      type: decoded\n"
                              "      jpeg_restart_markers: false\n"
                              "      dir: null\n"));
  EXPECT_THAT(text,
              HasSubstr("    batch_transforms:\n"
                        "      - random_choice: [mixup: {alpha: 1}, cutmix: {alpha: 0.5}]\n"));
  EXPECT_THAT(text, HasSubstr("\n  early_stopping:\n    patience: 3\n    patience_steps: null\n"
                              "    min_delta: 0\n    stopping_threshold: null\n"));
  EXPECT_THAT(text, HasSubstr("\n  generate: null\n"));
}

TEST(WriterTest, WritesNumbersForEveryYamlReader) {
  // YAML 1.1 parses 1e-08 as text: a number with an exponent needs a decimal point.
  const std::string text = to_yaml(valid_config(kTextData + "optimizer: {eps: 1e-8, lr: 1e-7}\n"));
  EXPECT_THAT(text, HasSubstr("  eps: 1.0e-08\n"));
  EXPECT_THAT(text, HasSubstr("  lr: 1.0e-07\n"));
}

TEST(WriterTest, WritesTextForEveryYamlReader) {
  // `off` is a bool in YAML 1.1, 007 is a number in every version, null is null.
  const std::string text =
      to_yaml(valid_config(kTextData + "control: {socket: off}\nrun: {dir: 007}\n"
                                       "eval: {generate: {prompt: \"null\"}}\n"));
  EXPECT_THAT(text, HasSubstr("  socket: \"off\"\n"));
  EXPECT_THAT(text, HasSubstr("  dir: \"007\"\n"));
  EXPECT_THAT(text, HasSubstr("    prompt: \"null\"\n"));
}

TEST(WriterTest, WritesAbsentValuesAsNullOrAuto) {
  const std::string text =
      to_yaml(valid_config(kTextData, {"feed.num_workers=auto", "feed.worker_timeout_seconds=null",
                                       "control.socket=null", "checkpoint.monitor=null"}));
  EXPECT_THAT(text, HasSubstr("  num_workers: auto\n"));
  EXPECT_THAT(text, HasSubstr("  worker_timeout_seconds: null\n"));
  EXPECT_THAT(text, HasSubstr("  socket: null\n"));
  EXPECT_THAT(text, HasSubstr("  monitor: null\n"));
  EXPECT_THAT(text, HasSubstr("  sample_weights_path: null\n"));
}

// ---- diff_configs()

TEST(DiffConfigsTest, NamesSettingsWithBothValues) {
  const Config previous = valid_config(kTextData + "train: {max_steps: 5}\n");
  const Config current = valid_config(kTextData + "train: {max_steps: 6}\nlog: {level: debug}\n");
  EXPECT_THAT(changes_between(previous, current),
              ElementsAre("train.max_steps: 5 -> 6", "log.level: info -> debug"));
  EXPECT_THAT(changes_between(previous, previous), IsEmpty());
}

TEST(DiffConfigsTest, ShowsListsAndTextsAsYaml) {
  const Config previous = valid_config(kTextData);
  const Config current = valid_config(
      "data: {train: {format: text, path: a b, split: [0, 0.5]}}\n"
      "model: {name: gpt, freeze: [x]}\n");
  EXPECT_THAT(changes_between(previous, current),
              ElementsAre("data.train.path: corpus.txt -> \"a b\"",
                          "data.train.split: [0, 1] -> [0, 0.5]", "model.freeze: [] -> [x]"));
}

TEST(DiffConfigsTest, NamesKeysOfNestedMappings) {
  const Config previous = valid_config(kTextData);
  const Config current =
      valid_config(kTextData, {"data.train.sequence.block_size=64",
                               "eval.early_stopping.patience=3", "eval.generate.prompt=x"});
  EXPECT_THAT(
      changes_between(previous, current),
      ElementsAre("data.train.sequence.block_size: 128 -> 64",
                  "eval.early_stopping.patience: null -> 3", "eval.generate.prompt: \"\" -> x"));
  const Config without = valid_config(kTextData, {"eval.generate=null"});
  EXPECT_THAT(changes_between(previous, without), Contains("eval.generate: (unset) -> null"));
  EXPECT_THAT(changes_between(previous, without),
              Contains("eval.generate.max_new_tokens: 200 -> (unset)"));
}

TEST(DiffConfigsTest, ShowsKeysOfOneSideAsUnset) {
  const Config previous = valid_config(kTextData);
  const Config current = valid_config(
      "data: {train: {format: text, path: corpus.txt}, more: {format: text, path: x}}\n"
      "scheduler: {name: constant}\n");
  const auto lines = changes_between(previous, current);
  EXPECT_THAT(lines, Contains("data.more.path: (unset) -> x"));
  EXPECT_THAT(lines, Contains("scheduler.name: cosine -> constant"));
  EXPECT_THAT(lines, Contains("scheduler.min_lr: null -> (unset)"));
}

TEST(DiffConfigsTest, MarksWhatResumedRunMayChange) {
  const auto mark_of = [](const std::string& flag) {
    const auto changes = diff_configs(valid_config(kTextData), valid_config(kTextData, {flag}));
    EXPECT_EQ(changes.size(), 1u) << flag;
    return changes.empty() ? OnResume::kFree : changes[0].on_resume;
  };
  EXPECT_EQ(mark_of("run.dir=x"), OnResume::kFree);
  EXPECT_EQ(mark_of("train.max_steps=9"), OnResume::kLive);
  EXPECT_EQ(mark_of("data.train.refresh=epoch"), OnResume::kFree);
  EXPECT_EQ(mark_of("data.train.path=x"), OnResume::kFree);
  EXPECT_EQ(mark_of("log.level=debug"), OnResume::kLive);
  EXPECT_EQ(mark_of("run.seed=2"), OnResume::kData);
  EXPECT_EQ(mark_of("data.train.split=[0, 0.5]"), OnResume::kData);
  EXPECT_EQ(mark_of("data.train.sequence.block_size=5"), OnResume::kData);
  EXPECT_EQ(mark_of("feed.shuffle=none"), OnResume::kData);
  EXPECT_EQ(mark_of("feed.last_batch=drop"), OnResume::kData);
  EXPECT_EQ(mark_of("feed.producers=both"), OnResume::kData);
  EXPECT_EQ(mark_of("train.micro_batch_size=9"), OnResume::kBatch);
  EXPECT_EQ(mark_of("train.gradient_accumulation_steps=9"), OnResume::kBatch);
  EXPECT_EQ(mark_of("model.num_layers=9"), OnResume::kModel);
  EXPECT_EQ(mark_of("model.freeze=[a]"), OnResume::kModel);
}

TEST(DiffConfigsTest, IsEmptyOnlyForEqualConfigs) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 500; ++i) {
    const Config a = random_config(random);
    const Config b = random_config(random);
    EXPECT_EQ(diff_configs(a, b).empty(), a == b);
    EXPECT_THAT(diff_configs(a, a), IsEmpty());
  }
}

}  // namespace
}  // namespace stoker::config::test
