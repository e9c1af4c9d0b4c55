#include "daemon/app/cluster_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/group/socket_address.h"
#include "shared/config/load_config.h"

namespace stoker::app {
namespace {

using config::ReplicaMode;
using config::VariablePlacement;
using parameter_server::Job;
using ::testing::HasSubstr;

CommandLine command_of_worker() {
  CommandLine command;
  command.cluster = {.ps_hosts = "a:2222,b:2222",
                     .worker_hosts = "c:2222,d:2222,e:2222",
                     .job_name = "worker",
                     .task_index = 1};
  return command;
}

ClusterLaunch launch_of(const CommandLine& command) {
  const auto launch = make_cluster_launch(command, "");
  EXPECT_TRUE(launch.ok()) << launch.status().to_string();
  return launch.ok() && *launch ? **launch : ClusterLaunch();
}

config::Config supported() {
  const auto parsed = config::parse_config(
      "data: {train: {format: synthetic, num_samples: 64, input_shape: [4], num_targets: 1}}\n"
      "feed: {on_sample_error: fail}\n"
      "model: {name: mlp, hidden_sizes: [8]}\n"
      "task: {name: regression}\n"
      "train: {gradient_accumulation_steps: 2, num_threads: 1, max_grad_norm: null}\n"
      "run: {rng: per_ticket}\n"
      "distributed: {reduction: ordered}\n",
      "test.yaml", {});
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return *parsed;
}

TEST(ClusterStartTest, TrainsInSyncAndRoundRobinByDefault) {
  const ClusterLaunch launch = launch_of(command_of_worker());
  EXPECT_EQ(launch.replicas, ReplicaMode::kSync);
  EXPECT_EQ(launch.placement, VariablePlacement::kRoundRobin);
  EXPECT_FALSE(launch.max_staleness);
}

TEST(ClusterStartTest, TakesOptionsOfCommandLine) {
  CommandLine command = command_of_worker();
  command.replicas = "async";
  command.placement = "bytes";
  command.max_staleness = 3;
  const ClusterLaunch launch = launch_of(command);
  EXPECT_EQ(launch.replicas, ReplicaMode::kAsync);
  EXPECT_EQ(launch.placement, VariablePlacement::kBytes);
  EXPECT_EQ(launch.max_staleness, 3u);
}

TEST(ClusterStartTest, TakesOptionsOfConfiguration) {
  CommandLine command = command_of_worker();
  command.max_staleness = 3;
  config::ClusterConfig configured{.replicas = config::ReplicaMode::kAsync,
                                   .max_staleness = 3,
                                   .placement = config::VariablePlacement::kBytes};
  const auto launch = make_cluster_launch(command, "", configured);
  ASSERT_TRUE(launch.ok() && *launch) << launch.status().to_string();
  EXPECT_EQ((*launch)->replicas, ReplicaMode::kAsync);
  EXPECT_EQ((*launch)->placement, VariablePlacement::kBytes);
  EXPECT_EQ((*launch)->max_staleness, 3u);
}

TEST(ClusterStartTest, NamesOptionAndSettingThatDiffer) {
  const auto error = [](auto change, const config::ClusterConfig& configured) {
    CommandLine command = command_of_worker();
    change(command);
    const auto launch = make_cluster_launch(command, "", configured);
    EXPECT_EQ(launch.status().code(), StatusCode::kInvalidArgument);
    return launch.status().message();
  };
  EXPECT_THAT(error([](auto& command) { command.replicas = "sync"; },
                    {.replicas = config::ReplicaMode::kAsync}),
              HasSubstr("--replicas is sync, but cluster.replicas is async; make them equal"));
  EXPECT_THAT(error([](auto& command) { command.placement = "bytes"; },
                    {.placement = config::VariablePlacement::kRoundRobin}),
              HasSubstr("--placement is bytes, but cluster.placement is round_robin"));
  EXPECT_THAT(error([](auto& command) { command.max_staleness = 2; }, {.max_staleness = 4}),
              HasSubstr("--max-staleness is 2, but cluster.max_staleness is 4"));
}

// For a run that trains alone with the same configuration.
TEST(ClusterStartTest, IgnoresModeOfConfigurationWithoutCluster) {
  const auto launch =
      make_cluster_launch(CommandLine(), "", {.replicas = config::ReplicaMode::kAsync});
  ASSERT_TRUE(launch.ok());
  EXPECT_FALSE(*launch);
}

TEST(ClusterStartTest, HasNoClusterWithoutTask) {
  const auto launch = make_cluster_launch(CommandLine(), "");
  ASSERT_TRUE(launch.ok());
  EXPECT_FALSE(*launch);
}

TEST(ClusterStartTest, RejectsOptionsWithoutTask) {
  CommandLine command;
  command.replicas = "async";
  const auto launch = make_cluster_launch(command, "");
  EXPECT_EQ(launch.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(launch.status().message(), HasSubstr("or TF_CONFIG"));
}

TEST(ClusterStartTest, GivesWorkersFirstRanksAndServersTheNextOnes) {
  ClusterLaunch launch = launch_of(command_of_worker());
  EXPECT_EQ(rank_of(launch.task, {}).rank, 1);
  EXPECT_EQ(rank_of(launch.task, {}).world_size, 5);
  launch.task.job = Job::kPs;
  EXPECT_EQ(rank_of(launch.task, {}).rank, 4);
}

TEST(ClusterStartTest, SupportsConfigurationWithoutWhatServersCannotDo) {
  const ClusterLaunch launch = launch_of(command_of_worker());
  const Status status = check_cluster_support(supported(), launch);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(ClusterStartTest, ReportsAllThatIsNotSupported) {
  const ClusterLaunch launch = launch_of(command_of_worker());
  config::Config config = supported();
  config.train.ema_decay = 0.99;
  config.scheduler.schedule = config::ReduceOnPlateauScheduler{};
  config.feed.on_sample_error = config::OnSampleError::kSkip;
  config.distributed.reduction.reset();
  const Status status = check_cluster_support(config, launch);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  for (const char* const key :
       {"train.ema_decay:", "scheduler.name:", "feed.on_sample_error:", "distributed.reduction:"})
    EXPECT_THAT(status.message(), HasSubstr(key));
}

TEST(ClusterStartTest, ChecksSectionOfConfigurationForAnyTask) {
  config::Config config = supported();
  config.train.gradient_accumulation_steps = 2;
  CommandLine command;
  command.replicas = "async";
  EXPECT_TRUE(check_configured_cluster(config, command).ok()) << "no cluster";
  config.cluster.ps = {"a:1"};
  config.cluster.worker = {"b:1"};
  EXPECT_TRUE(check_configured_cluster(config, CommandLine()).ok());
  EXPECT_THAT(check_configured_cluster(config, command).message(),
              HasSubstr("train.gradient_accumulation_steps: must be 1"));
}

TEST(ClusterStartTest, SupportsClippingAndUntrainedParameters) {
  config::Config config = supported();
  config.train.max_grad_norm = 1;
  config.model.freeze = {"layers.*"};
  config.model.lora.emplace();
  const Status status = check_cluster_support(config, launch_of(command_of_worker()));
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(ClusterStartTest, ComparesDataWithThoseOfChief) {
  auto listening = group::listen_on("127.0.0.1", 0);
  ASSERT_TRUE(listening.ok());
  const auto store =
      group::TcpStore::serve(*std::move(listening), {.prefix = "test", .server = "ps 0"});
  ASSERT_TRUE(store.ok());
  const group::SharedSettings data{{"data.train fingerprint", "a"}};
  const parameter_server::Meeting meeting;
  const auto compare = [&](bool is_chief, const group::SharedSettings& own) {
    return compare_with_chief(**store, is_chief, own, {meeting, "worker 0"}, {});
  };
  ASSERT_TRUE(compare(/*is_chief=*/true, data).ok());
  EXPECT_TRUE(compare(/*is_chief=*/false, data).ok());
  const Status other = compare(/*is_chief=*/false, {{"data.train fingerprint", "b"}});
  EXPECT_EQ(other.code(), StatusCode::kMismatch);
  EXPECT_THAT(other.message(), HasSubstr("is 'b' here, and 'a' on worker 0, the chief"));
}

TEST(ClusterStartTest, RequiresOneGradientPerAsyncStep) {
  CommandLine command = command_of_worker();
  command.replicas = "async";
  config::Config config = supported();
  config.distributed.reduction.reset();
  config.train.gradient_accumulation_steps = 1;
  EXPECT_TRUE(check_cluster_support(config, launch_of(command)).ok());
  config.train.gradient_accumulation_steps = 2;
  EXPECT_THAT(
      check_cluster_support(config, launch_of(command)).message(),
      HasSubstr("train.gradient_accumulation_steps: must be 1 with cluster.replicas async"));
}

TEST(ClusterStartTest, RejectsStalenessOfSyncRun) {
  CommandLine command = command_of_worker();
  command.max_staleness = 3;
  EXPECT_THAT(check_cluster_support(supported(), launch_of(command)).message(),
              HasSubstr("cluster.max_staleness: requires cluster.replicas async"));
}

}  // namespace
}  // namespace stoker::app
