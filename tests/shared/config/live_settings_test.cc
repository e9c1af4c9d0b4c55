#include "shared/config/live_settings.h"

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/load_config.h"
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string error_of(const Result<LiveConfig>& changed) {
  return changed.ok() ? "no error" : changed.status().message();
}

TEST(LiveSettingsTest, MarksSettingsThatCanChange) {
  std::vector<std::string> live;
  for (const Setting& setting : all_settings(valid_config(kTextData)))
    if (setting.is_live) live.push_back(setting.key);
  EXPECT_THAT(live,
              ElementsAre("feed.num_workers", "optimizer.lr", "scheduler.min_lr", "train.max_steps",
                          "train.max_epochs", "checkpoint.save_every_steps",
                          "checkpoint.save_every_seconds", "checkpoint.keep_last",
                          "checkpoint.keep_every_steps", "checkpoint.keep_every_hours",
                          "checkpoint.keep_unevaluated", "metrics.log_every_steps", "log.level"));
}

TEST(LiveSettingsTest, ReplacesEachLiveSetting) {
  const Config configured = valid_config(kTextData);
  const std::pair<const char*, const char*> values[] = {{"feed.num_workers", "auto"},
                                                        {"feed.num_workers", "7"},
                                                        {"optimizer.lr", "0.00125"},
                                                        {"scheduler.min_lr", "1.0e-04"},
                                                        {"train.max_steps", "12345"},
                                                        {"checkpoint.save_every_steps", "7"},
                                                        {"checkpoint.save_every_steps", "null"},
                                                        {"checkpoint.save_every_seconds", "1.5"},
                                                        {"checkpoint.keep_last", "9"},
                                                        {"checkpoint.keep_every_steps", "11"},
                                                        {"checkpoint.keep_every_hours", "0.5"},
                                                        {"checkpoint.keep_unevaluated", "21"},
                                                        {"metrics.log_every_steps", "3"},
                                                        {"log.level", "debug"}};
  for (const auto& [key, value] : values) {
    const auto changed = set_live(configured, {}, key, value);
    ASSERT_TRUE(changed.ok()) << key << ": " << changed.status().message();
    EXPECT_EQ(*value_of(changed->config, key), value) << key;
    EXPECT_THAT(changed->live, ElementsAre(LiveSetting{key, value, *value_of(configured, key)}));
    const auto differences = diff_configs(configured, changed->config);
    ASSERT_EQ(differences.size(), 1u) << key << " changes nothing else";
    const auto restored = unset_live(configured, changed->live, key);
    ASSERT_TRUE(restored.ok()) << restored.status().message();
    EXPECT_EQ(restored->config, configured);
    EXPECT_THAT(restored->live, IsEmpty());
  }
}

TEST(LiveSettingsTest, KeepsOtherSettingsAndWritesValueInItsUsualForm) {
  const Config configured = valid_config(kTextData);
  const auto first = set_live(configured, {}, "optimizer.lr", "1e-4");
  ASSERT_TRUE(first.ok()) << first.status().message();
  const auto second = set_live(configured, first->live, "log.level", "error");
  ASSERT_TRUE(second.ok()) << second.status().message();
  const auto third = set_live(configured, second->live, "optimizer.lr", "2.0e-4");
  ASSERT_TRUE(third.ok()) << third.status().message();
  EXPECT_EQ(first->live[0].value, "1.0e-04");
  ASSERT_EQ(third->live.size(), 2u);
  EXPECT_EQ(third->live[0].value, "2.0e-04");
  EXPECT_EQ(third->config.optimizer.lr(), 2e-4);
  EXPECT_EQ(third->config.log.level, LogLevel::kError);
  EXPECT_EQ(*with_live_settings(configured, third->live), third->config);
}

TEST(LiveSettingsTest, RejectsKeysThatCannotChange) {
  const Config configured = valid_config(kTextData);
  EXPECT_THAT(error_of(set_live(configured, {}, "model.num_layers", "3")),
              AllOf(HasSubstr("model.num_layers cannot change during the run"),
                    HasSubstr("optimizer.lr, scheduler.min_lr, train.max_steps")));
  EXPECT_THAT(error_of(set_live(configured, {}, "train.max_stepz", "3")),
              HasSubstr("unknown setting 'train.max_stepz'; did you mean 'train.max_steps'?"));
  EXPECT_THAT(error_of(set_live(configured, {}, "lr", "3")),
              HasSubstr("unknown setting 'lr'; did you mean 'optimizer.lr'?"));
  EXPECT_THAT(error_of(set_live(configured, {}, "foo", "3")),
              HasSubstr("unknown setting 'foo'; those that can change: feed.num_workers, "));
  EXPECT_THAT(error_of(unset_live(configured, {}, "log.level")),
              HasSubstr("log.level has the value of the configuration"));
}

TEST(LiveSettingsTest, RejectsInvalidValuesInOneLineWithoutLocations) {
  const Config configured = valid_config(kTextData, {"feed.num_processes=2", "feed.num_workers=2"});
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"optimizer.lr", "fast"}, "optimizer.lr=fast: must be a number"},
      {{"optimizer.lr", "0"}, "optimizer.lr=0: must be a number above 0"},
      {{"train.max_steps", "-1"}, "train.max_steps=-1: must be an integer from 1"},
      {{"train.max_steps", "{"}, "train.max_steps={: "},
      {{"log.level", "loud"}, "must be debug, info, warning or error, got 'loud'"},
      {{"checkpoint.keep_last", "1"}, "must be an integer from 2"},
      {{"feed.num_workers", "1"},
       "feed.num_processes: must be at most feed.num_workers (1), got 2"}};
  for (const auto& [words, message] : cases) {
    const std::string error = error_of(set_live(configured, {}, words[0], words[1]));
    EXPECT_THAT(error, HasSubstr(message));
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    EXPECT_EQ(error.find("configuration:"), std::string::npos) << error;
    EXPECT_EQ(error.find("--set"), std::string::npos) << error;
  }
}

TEST(LiveSettingsTest, DropsValueWhenConfigurationChanges) {
  const Config before = valid_config(kTextData);
  const auto lr = set_live(before, {}, "optimizer.lr", "0.5");
  ASSERT_TRUE(lr.ok());
  const auto both = set_live(before, lr->live, "train.max_steps", "777");
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(resume_live(before, both->live).kept, both->live);
  EXPECT_THAT(resume_live(before, both->live).dropped, IsEmpty());

  const ResumedSettings resumed =
      resume_live(valid_config(kTextData, {"train.max_steps=900"}), both->live);
  EXPECT_EQ(resumed.kept, lr->live);
  ASSERT_EQ(resumed.dropped.size(), 1u);
  EXPECT_EQ(resumed.dropped[0].setting.key, "train.max_steps");
  EXPECT_THAT(resumed.dropped[0].reason, HasSubstr(" -> 900"));
}

TEST(LiveSettingsTest, DropsUnknownAndInvalidValuesOfCheckpoint) {
  const Config configured = valid_config(kTextData);
  const ResumedSettings resumed =
      resume_live(configured, {{"of.a_later_release", "1", "2"},
                               {"model.name", "mlp", *value_of(configured, "model.name")},
                               {"optimizer.lr", "none", *value_of(configured, "optimizer.lr")}});
  EXPECT_THAT(resumed.kept, IsEmpty());
  ASSERT_EQ(resumed.dropped.size(), 3u);
  EXPECT_EQ(resumed.dropped[0].reason, "the configuration has no such setting");
}

TEST(LiveSettingsTest, DropsThoseOfAnotherScheduler) {
  const Config plateau = valid_config(kTextData, {"scheduler={name: reduce_on_plateau}"});
  const auto live = set_live(plateau, {}, kNumReductionsKey, "2");
  ASSERT_TRUE(live.ok()) << live.status().message();
  const ResumedSettings resumed =
      resume_live(valid_config(kTextData, {"scheduler={name: cosine}"}), live->live);
  EXPECT_THAT(resumed.kept, IsEmpty());
  ASSERT_EQ(resumed.dropped.size(), 1u);
  EXPECT_EQ(resumed.dropped[0].setting.key, "scheduler.num_reductions");
  EXPECT_EQ(resumed.dropped[0].reason, "the configuration has no such setting");
}

TEST(LiveSettingsTest, WritesValuesAsJson) {
  EXPECT_EQ(to_json_value("0.0001"), 1e-4);
  EXPECT_EQ(to_json_value("1.0e-08"), 1e-8);
  EXPECT_EQ(to_json_value("null"), nullptr);
  EXPECT_EQ(to_json_value("auto"), "auto");
  EXPECT_EQ(to_json_value("[1, 2]"), "[1, 2]");
  EXPECT_EQ(to_json_value("a \"b\""), "a \"b\"");
}

TEST(SettingOriginsTest, TellsFileFromOverridesAndDefaults) {
  SettingOrigins origins;
  const auto config = parse_config(kTextData + "model: {name: gpt}\ntrain: {max_steps: 5}\n",
                                   "a.yaml", {"train.max_steps=7", "log.level=debug"}, &origins);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(origins.at("train.max_steps"), SettingOrigin::kOverride);
  EXPECT_EQ(origins.at("log.level"), SettingOrigin::kOverride);
  EXPECT_EQ(origins.at("data.train.path"), SettingOrigin::kFile);
  EXPECT_FALSE(origins.contains("optimizer.lr"));
}

}  // namespace
}  // namespace stoker::config::test
