#include "shared/config/config_warnings.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/live_settings.h"
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kClassifierData =
    "data: {train: {format: synthetic, input_shape: [4], num_samples: 50, num_classes: 3}, val: "
    "{format: synthetic, input_shape: [4], num_samples: 50, num_classes: 3}}\n"
    "model: {name: mlp, hidden_sizes: [4]}\n"
    "task: {name: classification}\n";

std::vector<std::string> keys_of(const std::vector<ConfigWarning>& warnings) {
  std::vector<std::string> keys;
  for (const ConfigWarning& warning : warnings) keys.push_back(warning.key);
  return keys;
}

std::vector<std::string> warned_keys(const Flags& flags) {
  return keys_of(find_config_warnings(valid_config(kClassifierData, flags)));
}

TEST(ConfigWarningsTest, HasNoneForDefaults) {
  EXPECT_THAT(warned_keys({}), IsEmpty());
  EXPECT_THAT(keys_of(find_config_warnings(valid_config(kTextData))), IsEmpty());
}

TEST(ConfigWarningsTest, HasNoneForShippedConfigurations) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(STOKER_SOURCE_DIR "/config")) {
    if (entry.path().extension() != ".yaml" || entry.path().filename() == "stoker.yaml") continue;
    const auto config = load_config(entry.path().string(), {});
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_THAT(keys_of(find_config_warnings(*config)), IsEmpty()) << entry.path();
    ++num_files;
  }
  EXPECT_GE(num_files, 8);
}

// Each pair: settings that agree, and those that contradict each other.
struct Contradiction {
  const char* key;
  Flags valid;
  Flags contradictory;
};

class ConfigWarningsTest : public testing::TestWithParam<Contradiction> {};

TEST_P(ConfigWarningsTest, NamesTheSetting) {
  const Contradiction& each = GetParam();
  EXPECT_THAT(warned_keys(each.valid), IsEmpty());
  EXPECT_THAT(warned_keys(each.contradictory), ElementsAre(each.key));
}

INSTANTIATE_TEST_SUITE_P(
    All, ConfigWarningsTest,
    testing::Values(
        Contradiction{"scheduler.warmup_steps", {"train.max_steps=101"}, {"train.max_steps=40"}},
        Contradiction{"scheduler.warmup_steps",
                      {"scheduler.name=constant", "train.max_steps=100"},
                      {"train.max_steps=100"}},
        Contradiction{"scheduler.warmup_steps",
                      {"scheduler.name=constant", "scheduler.warmup_steps=7", "train.max_steps=7"},
                      {"scheduler.name=constant", "scheduler.warmup_steps=8", "train.max_steps=7"}},
        Contradiction{"scheduler.step_size",
                      {"scheduler.name=step", "scheduler.step_size=1899"},
                      {"scheduler.name=step", "scheduler.step_size=1900"}},
        Contradiction{"scheduler.gamma",
                      {"scheduler.name=step", "scheduler.gamma=0.9"},
                      {"scheduler.name=step", "scheduler.gamma=1.1"}},
        Contradiction{"scheduler.name",
                      {"optimizer={name: schedule_free_adamw}", "eval.use_ema=true",
                       "scheduler.name=constant"},
                      {"optimizer={name: schedule_free_adamw}", "eval.use_ema=true"}},
        Contradiction{"model.unfreeze_at_step",
                      {"model.freeze=[fc.weight]", "model.unfreeze_at_step=1999"},
                      {"model.freeze=[fc.weight]", "model.unfreeze_at_step=2000"}},
        Contradiction{"train.ema_decay",
                      {"train.ema_decay=0.999", "eval.use_ema=true"},
                      {"train.ema_decay=0.9999", "eval.use_ema=true"}},
        Contradiction{"train.ema_decay",
                      {"train.ema_decay=0.9999", "train.ema_warmup=power", "eval.use_ema=true"},
                      {"train.ema_decay=0.999", "train.ema_every_steps=10", "eval.use_ema=true"}},
        Contradiction{"train.on_nonfinite",
                      {"train.on_nonfinite=rollback"},
                      {"train.on_nonfinite=rollback", "checkpoint.save_every_steps=null",
                       "checkpoint.save_every_seconds=null"}},
        Contradiction{"train.max_nonfinite",
                      {"train.on_nonfinite=skip_step", "train.max_nonfinite=3"},
                      {"train.max_nonfinite=3"}},
        Contradiction{"train.rollback_lr_factor",
                      {"train.on_nonfinite=rollback", "train.rollback_lr_factor=0.1"},
                      {"train.on_nonfinite=skip_step", "train.rollback_lr_factor=0.1"}},
        Contradiction{"checkpoint.keep_every_steps",
                      {"checkpoint.keep_every_steps=300"},
                      {"checkpoint.keep_every_steps=2001"}},
        Contradiction{"checkpoint.keep_every_steps",
                      {"checkpoint.keep_every_steps=1000"},
                      {"checkpoint.keep_every_steps=999"}},
        Contradiction{"checkpoint.monitor",
                      {"checkpoint.monitor=accuracy"},
                      {"checkpoint.monitor=accuracy", "checkpoint.save_top_k=0"}},
        Contradiction{"checkpoint.monitor",
                      {"checkpoint.monitor=accuracy"},
                      {"checkpoint.monitor=accuracy", "eval.datasets=[]"}},
        Contradiction{"eval.every_steps",
                      {"eval.checkpoints=interval", "eval.every_steps=2000"},
                      {"eval.checkpoints=interval", "eval.every_steps=2001"}},
        Contradiction{"eval.use_ema",
                      {"train.ema_decay=0.9", "eval.use_ema=true"},
                      {"train.ema_decay=0.9", "eval.use_ema=true", "eval.datasets=[]"}},
        Contradiction{
            "eval.use_ema",
            {"optimizer={name: schedule_free_adamw}", "scheduler={name: reduce_on_plateau}",
             "eval.use_ema=true"},
            {"optimizer={name: schedule_free_adamw}", "scheduler={name: reduce_on_plateau}"}},
        Contradiction{"eval.on_best_command",
                      {"eval.on_best_command=[/bin/true]"},
                      {"eval.on_best_command=[/bin/true]", "eval.datasets=[]"}},
        Contradiction{"eval.early_stopping",
                      {"eval.early_stopping.patience=3"},
                      {"eval.early_stopping.patience=3", "eval.datasets=[]"}},
        Contradiction{"eval.early_stopping.patience_steps",
                      {"eval.early_stopping.patience_steps=1999"},
                      {"eval.early_stopping.patience_steps=2000"}},
        Contradiction{"eval.early_stopping.min_delta",
                      {"eval.early_stopping={patience: 3, min_delta: 0.1}"},
                      {"eval.early_stopping={stopping_threshold: 3, min_delta: 0.1}"}}));

TEST(ConfigWarningsTest, SaysWhatHappens) {
  const auto warnings = find_config_warnings(valid_config(kClassifierData, {"train.max_steps=40"}));
  ASSERT_EQ(warnings.size(), 1u);
  // (s + 1) / w at the last step, 39.
  EXPECT_THAT(warnings[0].text(), HasSubstr("scheduler.warmup_steps: 100 is not below "
                                            "train.max_steps (40), so that the learning rate only "
                                            "reaches 40 % of optimizer.lr"));
}

TEST(ConfigWarningsTest, FindsThoseOfAChange) {
  const Config before = valid_config(kClassifierData, {"train.max_nonfinite=3"});
  const auto after = set_live(before, {}, "train.max_steps", "50");
  ASSERT_TRUE(after.ok()) << after.status().message();
  EXPECT_THAT(keys_of(new_config_warnings(before, after->config)),
              ElementsAre("scheduler.warmup_steps"));
}

// The rate would rise to min_lr.
TEST(MinLrTest, IsAtMostTheLearningRate) {
  EXPECT_THAT(errors_of(kTextData, {"optimizer.lr=0.01", "scheduler.min_lr=0.02"}),
              ElementsAre(HasSubstr("scheduler.min_lr=0.02: must be at most optimizer.lr (0.01)")));
  EXPECT_THAT(errors_of(kTextData, {"optimizer.lr=0.01", "scheduler.min_lr=0.01"}), IsEmpty());
  const Config config = valid_config(kTextData, {"optimizer.lr=0.01", "scheduler.min_lr=0.001"});
  const auto lowered = set_live(config, {}, "optimizer.lr", "1e-5");
  EXPECT_THAT(lowered.status().message(),
              HasSubstr("scheduler.min_lr: must be at most optimizer.lr (1e-05)"));
  const auto end = set_live(config, {}, "scheduler.min_lr", "1e-6");
  ASSERT_TRUE(end.ok()) << end.status().message();
  EXPECT_TRUE(set_live(config, end->live, "optimizer.lr", "1e-5").ok());
}

TEST(MinLrTest, FollowsTheLearningRateByDefault) {
  const Config config = valid_config(kTextData, {"optimizer.lr=0.01"});
  EXPECT_EQ(config.scheduler.min_lr(), std::nullopt);
  const auto lowered = set_live(config, {}, "optimizer.lr", "1e-5");
  ASSERT_TRUE(lowered.ok()) << lowered.status().message();
  EXPECT_EQ(lowered->config.scheduler.min_lr(), std::nullopt);
}

}  // namespace
}  // namespace stoker::config::test
