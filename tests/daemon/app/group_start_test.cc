#include "daemon/app/group_start.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/train/device.h"
#include "shared/config/load_config.h"
#include "shared/model/model.h"

namespace stoker::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

config::Config group_config(const std::vector<std::string>& changes = {}) {
  const auto parsed = config::parse_config(
      "data: {train: {format: synthetic, num_samples: 64, input_shape: [4], num_targets: 1}}\n"
      "model: {name: mlp, hidden_sizes: [8]}\n"
      "task: {name: regression}\n"
      "train: {gradient_accumulation_steps: 8, num_threads: 1}\n"
      "distributed: {reduction: ordered}\n",
      "test.yaml", changes);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return *parsed;
}

group::LaunchEnvironment rank_of(int rank, int world_size) {
  return {.launcher = group::Launcher::kTorchrun,
          .rank = rank,
          .world_size = world_size,
          .local_rank = rank,
          .local_world_size = world_size};
}

std::string error_of(const std::string& change, int world_size = 2) {
  return check_group_support(group_config({change}), rank_of(0, world_size)).message();
}

TEST(GroupStartTest, AcceptsOrderedReductionOfMicroBatchesThatRanksShare) {
  for (const int world_size : {2, 4, 8})
    EXPECT_TRUE(check_group_support(group_config(), rank_of(1, world_size)).ok());
}

TEST(GroupStartTest, RejectsEachSettingThatDoesNotWorkInGroup) {
  EXPECT_THAT(error_of("distributed.reduction=null"), HasSubstr("distributed.reduction: must be"));
  EXPECT_THAT(error_of("run.rng=sequential"), HasSubstr("run.rng: must be per_ticket"));
  EXPECT_THAT(error_of("train.device=cuda:1"),
              HasSubstr("train.device: must be auto, cpu or cuda in a group of 2 ranks"));
  EXPECT_THAT(error_of("feed.producers=both"), HasSubstr("feed.producers: must be internal"));
}

TEST(GroupStartTest, AcceptsBackendOfDevice) {
  const auto error_of_both = [](const std::string& device, const std::string& backend) {
    const auto config = group_config({"train.device=" + device, "distributed.backend=" + backend});
    return check_group_support(config, rank_of(0, 2)).message();
  };
  for (const char* const backend : {"auto", "gloo", "nccl"})
    EXPECT_EQ(error_of_both("auto", backend), "");
  EXPECT_EQ(error_of_both("cpu", "gloo"), "");
  EXPECT_EQ(error_of_both("cuda", "nccl"), "");
  EXPECT_THAT(error_of_both("cpu", "nccl"), HasSubstr("nccl is for train.device: cuda"));
  EXPECT_THAT(error_of_both("cuda", "gloo"), HasSubstr("gloo is for train.device: cpu"));
}

std::string device_of(const std::vector<std::string>& changes) {
  group::SingleProcessGroup alone;
  const auto device = choose_device(group_config(changes), rank_of(0, 1), alone, {});
  return device.ok() ? config::to_string(*device) : device.status().to_string();
}

TEST(GroupStartTest, TrainsOnCpuWithGloo) {
  EXPECT_EQ(device_of({"train.device=cpu"}), "cpu");
  EXPECT_EQ(device_of({"train.device=auto", "distributed.backend=gloo"}), "cpu");
}

TEST(GroupStartTest, FallsBackToCpuOrReportsMissingGpu) {
  if (!train::find_rank_device(0, 1).uuid.empty()) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(device_of({"train.device=auto"}), "cpu");
  EXPECT_THAT(device_of({"train.device=cuda"}), HasSubstr("train.device: cuda: rank 0: "));
  EXPECT_THAT(device_of({"distributed.backend=nccl"}),
              HasSubstr("distributed.backend: nccl: rank 0: "));
}

TEST(GroupStartTest, RejectsMicroBatchesThatRanksCannotShare) {
  EXPECT_THAT(
      error_of("train.gradient_accumulation_steps=8", 3),
      HasSubstr("3 ranks cannot share 8 micro-batches per step; set it to a multiple of 3"));
  EXPECT_THAT(error_of("train.gradient_accumulation_steps=1", 2),
              HasSubstr("2 ranks cannot share 1 micro-batch per step"));
}

TEST(GroupStartTest, ReportsWhyResultsDependOnNumberOfRanks) {
  EXPECT_THAT(world_size_effects(group_config(), rank_of(0, 4)), IsEmpty());
  EXPECT_THAT(world_size_effects(
                  group_config({"train.gradient_accumulation_steps=6", "train.num_threads=null"}),
                  rank_of(0, 3)),
              ElementsAre(HasSubstr("number of ranks"), HasSubstr("gradient_accumulation_steps"),
                          HasSubstr("train.num_threads")));
}

TEST(GroupStartTest, ReportsThatAllReduceDependsOnNumberOfRanks) {
  EXPECT_THAT(world_size_effects(group_config({"distributed.reduction=allreduce"}), rank_of(0, 2)),
              ElementsAre(HasSubstr("allreduce")));
}

TEST(GroupStartTest, ReportsThatGpusComputeDeterministicallyOnlyOnRequest) {
  const config::DeviceConfig gpu{.type = config::DeviceConfig::Type::kCuda, .index = 0};
  const config::DeviceConfig cpu{.type = config::DeviceConfig::Type::kCpu, .index = std::nullopt};
  EXPECT_THAT(world_size_effects(group_config(), gpu),
              ElementsAre("run.deterministic is false, and the ranks train on GPUs"));
  EXPECT_THAT(world_size_effects(group_config({"run.deterministic=true"}), gpu), IsEmpty());
  EXPECT_THAT(world_size_effects(group_config(), cpu), IsEmpty());
}

std::vector<std::string> effects_of_model(const std::string& layers) {
  const auto config = group_config({"model={name: sequential, layers: " + layers + "}"});
  const auto model = model::make_model(
      config.model, {{"input", DType::kF32, {4}}, {"target", DType::kF32, {1}}}, 0);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return model.ok() ? world_size_effects(**model) : std::vector<std::string>{};
}

TEST(GroupStartTest, ReportsThatStatisticsOfBatchNormAreThoseOfOneRank) {
  EXPECT_THAT(effects_of_model("[linear: {out_features: 8}, layer_norm, linear]"), IsEmpty());
  EXPECT_THAT(effects_of_model("[linear: {out_features: 8}, batch_norm, linear, batch_norm]"),
              ElementsAre(HasSubstr("batch norm's statistics, such as ")));
}

TEST(GroupStartTest, SeedsGeneratorPerTicketInGroup) {
  for (const char* const reduction : {"ordered", "allreduce"})
    EXPECT_EQ(group_config({std::string("distributed.reduction=") + reduction}).run.rng,
              config::Rng::kPerTicket);
}

TEST(GroupStartTest, UsesConfiguredThreads) {
  group::SingleProcessGroup alone;
  EXPECT_EQ(*choose_num_threads({.num_threads = 3}, alone, {}), 3);
  EXPECT_GE(*choose_num_threads({}, alone, {}), 1);
}

TEST(GroupStartTest, SharesSettingsByKey) {
  const auto settings = shared_settings(group_config());
  EXPECT_EQ(settings.front().first, "stoker version");
  EXPECT_NE(std::ranges::find(settings, group::SharedSettings::value_type(
                                            "train.gradient_accumulation_steps", "8")),
            settings.end());
}

TEST(GroupStartTest, GivesOtherRanksOwnFolder) {
  const run::RunLayout layout("runs/a");
  EXPECT_EQ(layout_of_rank(layout, 0).root(), "runs/a");
  EXPECT_EQ(layout_of_rank(layout, 3).trainer_log(), "runs/a/ranks/3/logs/stokerd.log");
  EXPECT_FALSE(without_duties_of_chief(group_config()).control.socket);
}

}  // namespace
}  // namespace stoker::app
