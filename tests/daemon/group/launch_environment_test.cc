#include "daemon/group/launch_environment.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::group {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kRunDirectory = "runs/demo";

EnvironmentVariables torchrun() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "node-0"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_RUN_ID", "job-7"},
          {"TORCHELASTIC_ERROR_FILE", "/tmp/job-7/error.json"},
          {"TORCHELASTIC_RESTART_COUNT", "2"}};
}

EnvironmentVariables open_mpi() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"PMIX_NAMESPACE", "1234@1"}};
}

EnvironmentVariables slurm() {
  return {{"SLURM_JOB_ID", "77"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "3"},
          {"SLURM_NTASKS", "16"},
          {"SLURM_STEP_NUM_TASKS", "5"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
          {"SLURM_STEP_NODELIST", "n[01-02],gpu-7"},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.9.9.9"}};
}

EnvironmentVariables with(EnvironmentVariables variables, const std::string& name,
                          const std::string& value) {
  variables[name] = value;
  return variables;
}

EnvironmentVariables without(EnvironmentVariables variables,
                             const std::vector<std::string>& names) {
  for (const std::string& name : names) variables.erase(name);
  return variables;
}

std::string error_of(const EnvironmentVariables& variables) {
  const auto environment = parse_launch_environment(variables, kRunDirectory);
  if (environment.ok()) return "";
  EXPECT_EQ(environment.status().code(), StatusCode::kInvalidArgument);
  return environment.status().message();
}

LaunchEnvironment parse(const EnvironmentVariables& variables) {
  auto environment = parse_launch_environment(variables, kRunDirectory);
  EXPECT_TRUE(environment.ok()) << environment.status().message();
  return environment.ok() ? *std::move(environment) : LaunchEnvironment{.rank = -1};
}

TEST(LaunchEnvironmentTest, IsOneProcessWithoutLauncher) {
  const LaunchEnvironment environment = parse({{"PATH", "/bin"}});
  EXPECT_EQ(environment.launcher, Launcher::kNone);
  EXPECT_EQ(environment.rank, 0);
  EXPECT_EQ(environment.world_size, 1);
  EXPECT_TRUE(environment.is_chief());
  EXPECT_TRUE(environment.is_single_node());
}

TEST(LaunchEnvironmentTest, ReadsTorchrun) {
  const LaunchEnvironment environment = parse(torchrun());
  EXPECT_EQ(environment.launcher, Launcher::kTorchrun);
  EXPECT_EQ(environment.rank, 5);
  EXPECT_EQ(environment.world_size, 8);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.local_world_size, 4);
  EXPECT_TRUE(environment.has_local_rank);
  EXPECT_EQ(environment.store_host, "node-0");
  EXPECT_EQ(environment.store_port, 29500);
  EXPECT_TRUE(environment.launcher_serves_store);
  EXPECT_EQ(environment.restart_count, 2);
  EXPECT_EQ(environment.job_id, "job-7");
  EXPECT_EQ(environment.error_file, "/tmp/job-7/error.json");
  EXPECT_FALSE(environment.is_chief());
  EXPECT_FALSE(environment.is_single_node());
  EXPECT_EQ(environment.name_of(5), "rank 5");
}

TEST(LaunchEnvironmentTest, LetsRankZeroServeStoreWithoutAgent) {
  EXPECT_FALSE(parse(without(torchrun(), {"TORCHELASTIC_USE_AGENT_STORE"})).launcher_serves_store);
  EXPECT_FALSE(
      parse(with(torchrun(), "TORCHELASTIC_USE_AGENT_STORE", "False")).launcher_serves_store);
}

TEST(LaunchEnvironmentTest, AcceptsTorchrunOfOneProcess) {
  auto variables = with(with(torchrun(), "RANK", "0"), "WORLD_SIZE", "1");
  variables = with(with(variables, "LOCAL_RANK", "0"), "LOCAL_WORLD_SIZE", "1");
  const LaunchEnvironment environment = parse(variables);
  EXPECT_EQ(environment.world_size, 1);
  EXPECT_TRUE(environment.is_single_node());
}

TEST(LaunchEnvironmentTest, ReportsMissingLocalRankOfPods) {
  const LaunchEnvironment environment =
      parse(without(torchrun(), {"LOCAL_RANK", "LOCAL_WORLD_SIZE"}));
  EXPECT_FALSE(environment.has_local_rank);
  EXPECT_EQ(environment.local_rank, 0);
  EXPECT_EQ(environment.local_world_size, 1);
}

TEST(LaunchEnvironmentTest, ReadsOpenMpi) {
  const LaunchEnvironment environment = parse(open_mpi());
  EXPECT_EQ(environment.launcher, Launcher::kOpenMpi);
  EXPECT_EQ(environment.rank, 1);
  EXPECT_EQ(environment.world_size, 2);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.store_host, "127.0.0.1");
  EXPECT_EQ(environment.job_id, "1234@1");
  EXPECT_TRUE(environment.is_single_node());
}

TEST(LaunchEnvironmentTest, NeedsAddressForOpenMpiOnSeveralNodes) {
  const auto variables = with(open_mpi(), "OMPI_COMM_WORLD_LOCAL_SIZE", "1");
  EXPECT_EQ(error_of(with(variables, "OMPI_COMM_WORLD_LOCAL_RANK", "0")),
            "Open MPI does not tell the host of rank 0; start stokerd with mpirun -x "
            "MASTER_ADDR=HOST");
  EXPECT_EQ(parse(with(with(variables, "OMPI_COMM_WORLD_LOCAL_RANK", "0"), "MASTER_ADDR", "n1"))
                .store_host,
            "n1");
}

TEST(LaunchEnvironmentTest, ReadsSlurmStep) {
  const LaunchEnvironment environment = parse(slurm());
  EXPECT_EQ(environment.launcher, Launcher::kSlurm);
  EXPECT_EQ(environment.rank, 3);
  EXPECT_EQ(environment.world_size, 5) << "of the step, not of the job";
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.local_world_size, 2);
  EXPECT_EQ(environment.store_host, "n01");
  EXPECT_EQ(environment.job_id, "77.0");
  EXPECT_EQ(environment.restart_count, 0);
  EXPECT_THAT(environment.rank_hosts, ElementsAre("n01", "n01", "n02", "n02", "gpu-7"));
  EXPECT_EQ(environment.name_of(4), "rank 4 (gpu-7)");
  EXPECT_EQ(parse(with(slurm(), "SLURM_RESTART_COUNT", "3")).restart_count, 3);
  EXPECT_EQ(parse(with(slurm(), "MASTER_ADDR", "ib-n01")).store_host, "ib-n01");
}

TEST(LaunchEnvironmentTest, DoesNotGuessHostsOfCyclicSlurmTasks) {
  EXPECT_THAT(parse(with(slurm(), "SLURM_DISTRIBUTION", "cyclic")).rank_hosts, IsEmpty());
}

TEST(LaunchEnvironmentTest, IsOneProcessInSlurmShells) {
  EXPECT_EQ(parse(without(slurm(), {"SLURM_STEP_ID"})).world_size, 1) << "salloc, batch script";
  EXPECT_EQ(parse(with(slurm(), "SLURM_STEP_ID", "batch")).world_size, 1);
  EXPECT_EQ(parse(with(slurm(), "SLURM_STEP_ID", "4294967290")).world_size, 1) << "salloc";
}

TEST(LaunchEnvironmentTest, PrefersInnermostLauncher) {
  EnvironmentVariables all = slurm();
  all.merge(open_mpi());
  EXPECT_EQ(parse(all).launcher, Launcher::kOpenMpi);
  all.merge(torchrun());
  EXPECT_EQ(parse(all).launcher, Launcher::kTorchrun);
}

// Of the same job, all ranks derive the same port; it is below the ephemeral range.
TEST(LaunchEnvironmentTest, DerivesPortFromJobAndRunDirectory) {
  const uint16_t port = parse(slurm()).store_port;
  EXPECT_GE(port, 20000);
  EXPECT_LT(port, 30000);
  EXPECT_EQ(parse(with(slurm(), "SLURM_PROCID", "0")).store_port, port);
  EXPECT_NE(parse(with(slurm(), "SLURM_JOB_ID", "78")).store_port, port);
  const auto other_directory = parse_launch_environment(slurm(), "runs/other");
  ASSERT_TRUE(other_directory.ok());
  EXPECT_NE(other_directory->store_port, port);
}

TEST(LaunchEnvironmentTest, PrefersGivenPortsToDerivedOnes) {
  const auto reserved = with(slurm(), "SLURM_STEP_RESV_PORTS", "12000-12003");
  EXPECT_EQ(parse(reserved).store_port, 12000);
  EXPECT_EQ(parse(with(reserved, "MASTER_PORT", "31000")).store_port, 31000);
  EXPECT_EQ(parse(with(open_mpi(), "MASTER_PORT", "31000")).store_port, 31000);
}

// ---- errors --------------------------------------------------------------------------------------

struct Case {
  std::string name;
  EnvironmentVariables variables;
  std::string error;
};

class LaunchEnvironmentErrorTest : public ::testing::TestWithParam<Case> {};

TEST_P(LaunchEnvironmentErrorTest, NamesVariables) {
  EXPECT_EQ(error_of(GetParam().variables), GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(
    Environments, LaunchEnvironmentErrorTest,
    ::testing::Values(
        Case{
            "RankOnly",
            {{"RANK", "1"}},
            "the environment of torchrun is incomplete: WORLD_SIZE, MASTER_ADDR, MASTER_PORT are "
            "not set, but RANK is; start stokerd with torchrun, or set them all, or unset RANK for "
            "a run of one process"},
        Case{"EmptyValue", with(torchrun(), "MASTER_ADDR", ""),
             "the environment of torchrun is incomplete: MASTER_ADDR is not set, but RANK, "
             "WORLD_SIZE, MASTER_PORT, LOCAL_RANK, LOCAL_WORLD_SIZE are; start stokerd with "
             "torchrun, or set them all, or unset RANK, WORLD_SIZE, MASTER_PORT, LOCAL_RANK, "
             "LOCAL_WORLD_SIZE for a run of one process"},
        Case{
            "LocalRankWithoutSize", without(torchrun(), {"LOCAL_WORLD_SIZE"}),
            "the environment of torchrun is incomplete: LOCAL_WORLD_SIZE is not set, but RANK, "
            "WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK are; start stokerd with torchrun, or "
            "set them all, or unset RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK for a "
            "run of one process"},
        Case{"RankTooLarge", with(torchrun(), "RANK", "8"),
             "environment variable RANK (8) must be below WORLD_SIZE (8)"},
        Case{"RankNegative", with(torchrun(), "RANK", "-1"),
             "environment variable RANK must be a number from 0 to 65536, got '-1'"},
        Case{"RankNotANumber", with(torchrun(), "RANK", "5 "),
             "environment variable RANK must be a number from 0 to 65536, got '5 '"},
        Case{"WorldSizeZero", with(torchrun(), "WORLD_SIZE", "0"),
             "environment variable WORLD_SIZE must be a number from 1 to 65536, got '0'"},
        Case{"WorldSizeOverflow", with(torchrun(), "WORLD_SIZE", "99999999999"),
             "environment variable WORLD_SIZE must be a number from 1 to 65536, got '99999999999'"},
        Case{"LocalWorldTooLarge", with(torchrun(), "LOCAL_WORLD_SIZE", "9"),
             "environment variable LOCAL_WORLD_SIZE must be a number from 1 to 8, got '9'"},
        Case{"LocalRankTooLarge", with(torchrun(), "LOCAL_RANK", "4"),
             "environment variable LOCAL_RANK (4) must be below LOCAL_WORLD_SIZE (4)"},
        Case{"PortZero", with(torchrun(), "MASTER_PORT", "0"),
             "environment variable MASTER_PORT must be a number from 1 to 65535, got '0'"},
        Case{
            "OpenMpiHalf", without(open_mpi(), {"OMPI_COMM_WORLD_RANK"}),
            "the environment of Open MPI is incomplete: OMPI_COMM_WORLD_RANK is not set, but "
            "OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE are; "
            "start stokerd with mpirun, or unset OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK, "
            "OMPI_COMM_WORLD_LOCAL_SIZE for a run of one process"},
        Case{"SlurmHalf", without(slurm(), {"SLURM_PROCID", "SLURM_NODEID"}),
             "the environment of Slurm is incomplete: SLURM_PROCID, SLURM_NODEID are not set, but "
             "SLURM_STEP_ID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE, "
             "SLURM_STEP_NODELIST are; start stokerd with srun, or unset SLURM_STEP_ID, "
             "SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE, SLURM_STEP_NODELIST "
             "for a run of one process"},
        Case{"SlurmInconsistent", with(slurm(), "SLURM_STEP_TASKS_PER_NODE", "2(x3)"),
             "the environment of Slurm is inconsistent: SLURM_STEP_NODELIST has 3 nodes, "
             "SLURM_STEP_TASKS_PER_NODE has 3 nodes and 6 tasks, and the step has 5 tasks; start "
             "stokerd with srun"},
        Case{"SlurmNode", with(slurm(), "SLURM_NODEID", "3"),
             "environment variable SLURM_NODEID must be a number from 0 to 2, got '3'"},
        Case{"SlurmLocalRank", with(slurm(), "SLURM_LOCALID", "2"),
             "environment variable SLURM_LOCALID (2) must be below the tasks of its node (2)"},
        Case{"SlurmHostList", with(slurm(), "SLURM_STEP_NODELIST", "n[01-"),
             "'n[01-' is not a host list of Slurm, such as n[01-03,7]"},
        Case{"SlurmPorts", with(slurm(), "SLURM_STEP_RESV_PORTS", "all"),
             "environment variable SLURM_STEP_RESV_PORTS must begin with a port, got 'all'"}),
    [](const auto& test_case) { return test_case.param.name; });

// ---- lists of Slurm ------------------------------------------------------------------------------

std::vector<std::string> hosts(const std::string& list) {
  auto hosts = expand_host_list(list);
  return hosts.ok() ? *std::move(hosts) : std::vector<std::string>{hosts.status().message()};
}

TEST(HostListTest, ExpandsRangesListsAndSeveralBrackets) {
  EXPECT_THAT(hosts("login"), ElementsAre("login"));
  EXPECT_THAT(hosts("a,b-1.example"), ElementsAre("a", "b-1.example"));
  EXPECT_THAT(hosts("n[01-03,7]"), ElementsAre("n01", "n02", "n03", "n7"));
  EXPECT_THAT(hosts("n[9-11],x"), ElementsAre("n9", "n10", "n11", "x"));
  EXPECT_THAT(hosts("n[098-100]-ib"), ElementsAre("n098-ib", "n099-ib", "n100-ib"));
  EXPECT_THAT(hosts("r[1-2]n[1,3]"), ElementsAre("r1n1", "r1n3", "r2n1", "r2n3"));
  EXPECT_THAT(hosts("n[4294967294-4294967295]"), ElementsAre("n4294967294", "n4294967295"));
}

TEST(HostListTest, RejectsInvalidAndHugeLists) {
  for (const char* const list :
       {"", ",", "a,", "n[", "n]", "n[]", "n[1-]", "n[-2]", "n[2-1]", "n[a-b]", "n[1,]", "n[1-2",
        "n[1[2]]", "n[0-99999999]", "n[0-4294967295]", "n[1-1000]m[1-1000]", "n[1-60000,1-60000]",
        "n[1-60000],m[1-60000]"}) {
    EXPECT_FALSE(expand_host_list(list).ok()) << list;
  }
}

TEST(TaskCountTest, ExpandsRepetitions) {
  const auto counts = expand_task_counts("2(x3),1");
  ASSERT_TRUE(counts.ok());
  EXPECT_THAT(*counts, ElementsAre(2, 2, 2, 1));
}

TEST(TaskCountTest, RejectsInvalidAndHugeLists) {
  for (const char* const list :
       {"", "0", "-1", "2(x", "2(x)", "2(x0)", "2(x-1)", "x3", "2,", "2(x3)1", "1(x999999999)"}) {
    EXPECT_FALSE(expand_task_counts(list).ok()) << list;
  }
}

}  // namespace
}  // namespace stoker::group
