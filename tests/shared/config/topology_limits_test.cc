#include "shared/config/topology_limits.h"

#include <array>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/live_settings.h"
#include "shared/config/load_config.h"

namespace stoker::config {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr std::array kTopologies{Topology::kGroup, Topology::kSyncServers, Topology::kAsyncServers};

Config config_with(const std::vector<std::string>& overrides) {
  const auto parsed = parse_config(
      "data: {train: {format: synthetic, num_samples: 64, input_shape: [4], num_targets: 1}}\n"
      "feed: {on_sample_error: fail}\n"
      "model: {name: mlp, hidden_sizes: [8]}\n"
      "task: {name: regression}\n"
      "run: {rng: per_ticket}\n"
      "distributed: {reduction: ordered}\n",
      "test.yaml", overrides);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return *parsed;
}

TEST(TopologyLimitsTest, AllowsWhatEachCanDo) {
  const Config config = config_with({});
  for (const Topology topology : kTopologies)
    EXPECT_THAT(broken_limits(config, topology), IsEmpty());
}

// Where each value is an error: a group of 2, synchronous, asynchronous servers.
struct Case {
  const char* setting;
  std::array<bool, 3> is_error;
};
class LimitTest : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    Settings, LimitTest,
    testing::Values(Case{"distributed.reduction=allreduce", {false, true, false}},
                    Case{"train.gradient_accumulation_steps=3", {true, false, true}},
                    Case{"train.gradient_accumulation_steps=4", {false, false, true}},
                    Case{"cluster.max_staleness=2", {false, true, false}},
                    Case{"run.rng=sequential", {true, true, true}},
                    Case{"feed.producers=both", {true, true, true}},
                    Case{"train.device=cuda", {false, true, true}},
                    Case{"train.device=cuda:1", {true, true, true}},
                    Case{"distributed.shard=optimizer", {false, true, true}},
                    Case{"train.ema_decay=0.9", {false, true, true}},
                    Case{"train.on_nonfinite=skip_step", {false, true, true}},
                    Case{"checkpoint.save_at_start=true", {false, true, true}},
                    Case{"metrics.histogram_every_steps=5", {false, true, true}},
                    Case{"feed.on_sample_error=skip", {false, true, true}},
                    Case{"optimizer.name=muon", {false, false, false}}));

TEST_P(LimitTest, IsErrorWhereItDoesNotWork) {
  const std::string setting = GetParam().setting;
  Config config = config_with({setting});
  const bool is_accumulation = setting.starts_with("train.gradient");
  for (size_t i = 0; i < kTopologies.size(); ++i) {
    // One micro-batch cannot be shared, and more are no asynchronous step.
    if (!is_accumulation)
      config.train.gradient_accumulation_steps = kTopologies[i] == Topology::kGroup ? 2 : 1;
    const auto errors = broken_limits(config, kTopologies[i], 2);
    if (GetParam().is_error[i])
      EXPECT_THAT(errors, ElementsAre(StartsWith(setting.substr(0, setting.find('=')) + ": ")))
          << i;
    else
      EXPECT_THAT(errors, IsEmpty()) << i;
  }
}

TEST(TopologyLimitsTest, ReportsAllWithTheirReasons) {
  const Config config = config_with({"run.rng=sequential", "distributed.reduction=null"});
  EXPECT_THAT(
      broken_limits(config, Topology::kGroup, 2),
      ElementsAre("distributed.reduction: must be ordered or allreduce in a group of 2 ranks (the "
                  "ranks must add gradients in the same way)",
                  StartsWith("train.gradient_accumulation_steps: 2 ranks cannot share 1 "
                             "micro-batch per step; set it to a multiple of 2"),
                  "run.rng: must be per_ticket in a group of 2 ranks (a micro-batch must not "
                  "depend on which process computes it)"));
}

TEST(TopologyLimitsTest, SaysWhyCommandsAreRejected) {
  EXPECT_EQ(command_limit("show-batch", Topology::kAsyncServers), "a step has no single batch");
  EXPECT_FALSE(command_limit("show-batch", Topology::kSyncServers));
  EXPECT_TRUE(command_limit("pause --release", Topology::kGroup));
  for (const Topology topology : kTopologies) EXPECT_FALSE(command_limit("pause", topology));
}

TEST(TopologyLimitsTest, NamesSettingsThatExist) {
  const Config config = config_with({});
  std::istringstream table(topology_limits_markdown());
  size_t num_settings = 0;
  for (std::string line; std::getline(table, line);) {
    const size_t from = line.find('`') + 1, to = line.find('`', from);
    if (from == 0 || line.find("| error |") != std::string::npos) continue;  // of a command
    const std::string key = line.substr(from, to - from);
    if (key == "data.train.stream" || key == "data.train.refresh") continue;  // of other formats
    EXPECT_TRUE(value_of(config, key).ok()) << key;
    ++num_settings;
  }
  EXPECT_GE(num_settings, 15u);
}

}  // namespace
}  // namespace stoker::config
