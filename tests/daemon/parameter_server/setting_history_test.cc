#include "daemon/parameter_server/setting_history.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

namespace stoker::parameter_server {
namespace {

config::Config config_of(uint64_t max_steps) {
  config::Config config;
  config.data["train"].source =
      config::SyntheticDataset{.num_samples = 64, .input_shape = {4}, .num_targets = 1};
  config.model.arch = config::MlpConfig{.hidden_sizes = {8}};
  config.task.task = config::RegressionTask{};
  config.optimizer.method = config::AdamWConfig{.lr = 0.5};
  config.scheduler = {.schedule = config::CosineScheduler{.min_lr = 0}, .warmup_steps = 0};
  config.train.max_steps = max_steps;
  config.eval.datasets = {};
  config.metrics.log_every_steps = 3;
  return config;
}

SettingsVersion version_of(uint64_t step, const std::string& key, const std::string& value,
                           double lr_scale = 1) {
  SettingsVersion version{.step = step, .live = {}, .change = {}};
  version.live.settings = {{.key = key, .value = value, .configured = ""}};
  version.live.lr_scale = lr_scale;
  return version;
}

// Of the configuration above.
double cosine(double lr, uint64_t step, uint64_t max_steps) {
  const double part = static_cast<double>(step) / static_cast<double>(max_steps);
  return lr * (1 + std::cos(std::numbers::pi * part)) / 2;
}

TEST(SettingHistoryTest, HasSettingsOfEachStep) {
  SettingHistory history(config_of(100));
  ASSERT_TRUE(history.add(version_of(10, "optimizer.lr", "0.25")).ok());
  ASSERT_TRUE(history.add(version_of(20, "train.max_steps", "200")).ok());
  ASSERT_TRUE(history.add(version_of(20, "train.max_steps", "50", 0.5)).ok());
  EXPECT_DOUBLE_EQ(history.learning_rate(9), cosine(0.5, 9, 100));
  EXPECT_DOUBLE_EQ(history.learning_rate(10), cosine(0.25, 10, 100));
  EXPECT_DOUBLE_EQ(history.learning_rate(20), 0.5 * cosine(0.5, 20, 50)) << "the last one";
  EXPECT_EQ(history.newest().train.max_steps, 50u);
}

// A record ends with the update before the step, which was made with the settings of the step before.
TEST(SettingHistoryTest, RecordsStepsOfUpdatesBeforeThem) {
  SettingHistory history(config_of(100));
  ASSERT_TRUE(history.add(version_of(9, "metrics.log_every_steps", "5")).ok());
  EXPECT_TRUE(history.is_recorded(9));
  EXPECT_TRUE(history.is_recorded(10));
  EXPECT_FALSE(history.is_recorded(12));
  EXPECT_TRUE(history.is_recorded(100));
}

TEST(SettingHistoryTest, RejectsSettingsThatAreNotValid) {
  SettingHistory history(config_of(100));
  EXPECT_EQ(history.add(version_of(1, "optimizer.lr", "-1")).code(), StatusCode::kInvalidArgument);
  EXPECT_DOUBLE_EQ(history.learning_rate(0), 0.5);
}

TEST(SettingsVersionTest, ReadsWhatItWrites) {
  SettingsVersion version = version_of(7, "optimizer.lr", "0.25", 0.125);
  version.change = {.key = "optimizer.lr", .previous = "0.5", .current = "0.25"};
  const auto read = parse_settings_version(to_json(version));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->step, 7u);
  EXPECT_EQ(read->live, version.live);
  EXPECT_EQ(read->change.key, "optimizer.lr");
  EXPECT_EQ(read->change.previous, "0.5");
  EXPECT_EQ(read->change.current, "0.25");
  version.change = {};
  EXPECT_TRUE(parse_settings_version(to_json(version))->change.key.empty());
}

TEST(SettingsVersionTest, ReportsWhatIsNoVersion) {
  for (const char* const text : {"", "[]", R"({"step":1})", R"({"step":"1","live":"{}"})"})
    EXPECT_EQ(parse_settings_version(text).status().code(), StatusCode::kInternal) << text;
}

}  // namespace
}  // namespace stoker::parameter_server
