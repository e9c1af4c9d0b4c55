#include "daemon/parameter_server/cluster_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::parameter_server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ClusterTask task_of(const ClusterFlags& flags, std::string_view tf_config = "",
                    const config::ClusterConfig& configured = {}) {
  const auto task = parse_cluster_task(flags, tf_config, configured);
  EXPECT_TRUE(task.ok()) << task.status().to_string();
  EXPECT_TRUE(task.ok() && task->has_value());
  return task.ok() && *task ? **task : ClusterTask();
}

std::string error_of(const ClusterFlags& flags, std::string_view tf_config = "",
                     const config::ClusterConfig& configured = {}) {
  const auto task = parse_cluster_task(flags, tf_config, configured);
  EXPECT_EQ(task.status().code(), StatusCode::kInvalidArgument);
  return task.status().message();
}

const ClusterFlags kFlags{.ps_hosts = "a:2222,b:2222",
                          .worker_hosts = "c:2222,d:2222",
                          .job_name = "worker",
                          .task_index = 1};

TEST(ClusterSpecTest, IsEmptyWithoutFlagsAndVariable) {
  const auto task = parse_cluster_task({}, "");
  ASSERT_TRUE(task.ok());
  EXPECT_FALSE(*task);
}

TEST(ClusterSpecTest, ParsesFlagsOfTensorFlowExamples) {
  const ClusterTask task = task_of(kFlags);
  EXPECT_THAT(task.cluster.ps, ElementsAre("a:2222", "b:2222"));
  EXPECT_THAT(task.cluster.worker, ElementsAre("c:2222", "d:2222"));
  EXPECT_EQ(task.job, Job::kWorker);
  EXPECT_EQ(task.index, 1);
  EXPECT_FALSE(task.is_chief());
  EXPECT_EQ(task.name(), "worker 1 (d:2222)");
}

TEST(ClusterSpecTest, MakesWorker0ChiefAndNoServer) {
  ClusterFlags flags = kFlags;
  flags.task_index = 0;
  EXPECT_TRUE(task_of(flags).is_chief());
  flags.job_name = "ps";
  EXPECT_FALSE(task_of(flags).is_chief());
}

TEST(ClusterSpecTest, NamesAllMissingFlags) {
  EXPECT_THAT(error_of({.ps_hosts = "a:1", .worker_hosts = "", .job_name = "ps", .task_index = {}}),
              HasSubstr("--worker_hosts, --task_index: required"));
  ClusterFlags flags = kFlags;
  flags.ps_hosts = flags.worker_hosts = "";
  EXPECT_THAT(error_of(flags), HasSubstr("--ps_hosts, --worker_hosts: required"));
  flags = kFlags;
  flags.job_name = "";
  flags.task_index.reset();
  EXPECT_THAT(error_of(flags), HasSubstr("--job_name, --task_index: required"));
}

TEST(ClusterSpecTest, RejectsInvalidFlags) {
  const auto with = [](auto change) {
    ClusterFlags flags = kFlags;
    change(flags);
    return error_of(flags);
  };
  EXPECT_THAT(with([](auto& flags) { flags.ps_hosts = "a:2222,b"; }),
              HasSubstr("--ps_hosts: must be host:port with a port from 1 to 65535, got 'b'"));
  EXPECT_THAT(with([](auto& flags) { flags.worker_hosts = "c:0"; }), HasSubstr("got 'c:0'"));
  EXPECT_THAT(with([](auto& flags) { flags.worker_hosts = "c:65536"; }),
              HasSubstr("got 'c:65536'"));
  EXPECT_THAT(with([](auto& flags) { flags.worker_hosts = ":1"; }), HasSubstr("got ':1'"));
  EXPECT_THAT(with([](auto& flags) { flags.ps_hosts = "a:1,"; }), HasSubstr("got ''"));
  EXPECT_THAT(with([](auto& flags) { flags.worker_hosts = "a:2222,d:2222"; }),
              HasSubstr("'a:2222' is the address of two tasks"));
  EXPECT_THAT(with([](auto& flags) { flags.job_name = "evaluator"; }),
              HasSubstr("--job_name: must be ps or worker, got 'evaluator'"));
  EXPECT_THAT(with([](auto& flags) { flags.task_index = 2; }),
              HasSubstr("--task_index: must be from 0 to 1 for the job worker, got 2"));
  EXPECT_THAT(with([](auto& flags) { flags.task_index = -1; }), HasSubstr("got -1"));
}

constexpr std::string_view kTfConfig = R"({
  "cluster": {"chief": ["c:1"], "worker": ["d:1", "e:1"], "ps": ["a:1", "b:1"], "evaluator": ["f:1"]},
  "environment": "cloud",)";

std::string with_task(const std::string& task) {
  return std::string(kTfConfig) + R"("task": )" + task + "}";
}

TEST(ClusterSpecTest, TakesChiefOfTfConfigAsWorker0) {
  const ClusterTask chief = task_of({}, with_task(R"({"type": "chief", "index": 0})"));
  EXPECT_THAT(chief.cluster.worker, ElementsAre("c:1", "d:1", "e:1"));
  EXPECT_TRUE(chief.is_chief());
  const ClusterTask worker = task_of({}, with_task(R"({"type": "worker", "index": 1})"));
  EXPECT_EQ(worker.index, 2);
  EXPECT_EQ(worker.name(), "worker 2 (e:1)");
  const ClusterTask ps = task_of({}, with_task(R"({"type": "ps", "index": 1})"));
  EXPECT_EQ(ps.name(), "ps 1 (b:1)");
}

TEST(ClusterSpecTest, TakesFirstWorkerAsChiefWithoutOneInTfConfig) {
  const ClusterTask worker = task_of(
      {},
      R"({"cluster": {"worker": ["c:1", "d:1"], "ps": ["a:1"]}, "task": {"type": "worker", "index": 0}})");
  EXPECT_TRUE(worker.is_chief());
}

// ---- several sources -----------------------------------------------------------------------------

const config::ClusterConfig kConfigured{.ps = {"a:1", "b:1"}, .worker = {"c:1", "d:1", "e:1"}};

TEST(ClusterSpecTest, TakesAddressesOfConfigurationAndTaskOfFlags) {
  const ClusterFlags flags{
      .ps_hosts = "", .worker_hosts = "", .job_name = "worker", .task_index = 2};
  const ClusterTask task = task_of(flags, "", kConfigured);
  EXPECT_EQ(task.name(), "worker 2 (e:1)");
  EXPECT_THAT(task.cluster.ps, ElementsAre("a:1", "b:1"));
  ClusterFlags outside = flags;
  outside.task_index = 3;
  EXPECT_THAT(error_of(outside, "", kConfigured), HasSubstr("--task_index: must be from 0 to 2"));
}

TEST(ClusterSpecTest, TakesTaskOfTfConfigWithoutCluster) {
  const auto tf_config = [](const std::string& task) { return R"({"task": )" + task + "}"; };
  EXPECT_EQ(task_of({}, tf_config(R"({"type": "worker", "index": 1})"), kConfigured).name(),
            "worker 1 (d:1)");
  EXPECT_TRUE(task_of({}, tf_config(R"({"type": "worker", "index": 0})"), kConfigured).is_chief());
  EXPECT_THAT(error_of({}, tf_config(R"({"type": "chief", "index": 0})"), kConfigured),
              HasSubstr("TF_CONFIG: task.type is chief, but without a cluster"));
  ClusterFlags hosts = kFlags;
  hosts.job_name = "";
  hosts.task_index.reset();
  EXPECT_EQ(task_of(hosts, tf_config(R"({"type": "ps", "index": 1})")).name(), "ps 1 (b:2222)");
  EXPECT_THAT(error_of({}, tf_config(R"({"type": "worker", "index": 7})"), kConfigured),
              HasSubstr("TF_CONFIG: task.index: must be from 0 to 2"));
}

TEST(ClusterSpecTest, AcceptsEqualSources) {
  const ClusterFlags flags{
      .ps_hosts = "a:1,b:1", .worker_hosts = "c:1,d:1,e:1", .job_name = "worker", .task_index = 1};
  const ClusterTask task =
      task_of(flags, with_task(R"({"type": "worker", "index": 0})"), kConfigured);
  EXPECT_EQ(task.name(), "worker 1 (d:1)");
}

TEST(ClusterSpecTest, NamesSourcesThatDiffer) {
  EXPECT_THAT(error_of(kFlags, "", kConfigured),
              HasSubstr("--ps_hosts and --worker_hosts and cluster.ps and cluster.worker of the "
                        "configuration are different: 'ps a:2222,b:2222, worker c:2222,d:2222' and "
                        "'ps a:1,b:1, worker c:1,d:1,e:1'"));
  EXPECT_THAT(error_of(kFlags, with_task(R"({"type": "worker", "index": 0})")),
              HasSubstr("--worker_hosts and TF_CONFIG (cluster) are different"));
  const ClusterFlags task{
      .ps_hosts = "", .worker_hosts = "", .job_name = "worker", .task_index = 1};
  EXPECT_THAT(error_of(task, with_task(R"({"type": "ps", "index": 0})")),
              HasSubstr("--job_name and --task_index and TF_CONFIG (task) are different: 'worker "
                        "1' and 'ps 0'"));
}

TEST(ClusterSpecTest, RequiresTaskOfConfiguredCluster) {
  EXPECT_THAT(error_of({}, "", kConfigured),
              HasSubstr("--job_name, --task_index: required for a task of the cluster of "
                        "cluster.ps and cluster.worker of the configuration"));
  // Of another kind.
  EXPECT_THAT(
      error_of({}, R"({"cluster": {"worker": ["c:1"]}, "task": {"type": "worker", "index": 0}})",
               kConfigured),
      HasSubstr("or TF_CONFIG with a task"));
}

// ---- TF_CONFIG -----------------------------------------------------------------------------------

TEST(ClusterSpecTest, IgnoresTfConfigWithoutParameterServers) {
  for (const std::string_view text :
       {R"({"cluster": {}})", R"({"environment": "cloud"})",
        R"({"cluster": {"chief": ["c:1"]}, "task": {"type": "chief", "index": 0}})",
        R"({"cluster": {"worker": ["c:1", "d:1"]}, "task": {"type": "worker", "index": 1}})"}) {
    const auto task = parse_cluster_task({}, text);
    ASSERT_TRUE(task.ok()) << text << ": " << task.status().to_string();
    EXPECT_FALSE(*task) << text;
  }
}

// Of any kind: tasks that ignored it would each train alone.
TEST(ClusterSpecTest, RejectsTfConfigThatIsNoClusterOfKnownJobs) {
  EXPECT_TRUE(check_tf_config("").ok());
  for (const std::string_view text : {"{bad", "[]", "null", "{'cluster': {'ps': ['a:1']}}"}) {
    EXPECT_THAT(error_of({}, text), HasSubstr("TF_CONFIG: must be a JSON object, got"));
    EXPECT_EQ(check_tf_config(text).code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(error_of({}, R"({"cluster": ["a:1"]})"), HasSubstr("cluster must be an object"));
  EXPECT_THAT(error_of({}, R"({"cluster": {"PS": ["a:1"]}, "task": {"type": "PS", "index": 0}})"),
              HasSubstr("unknown job 'PS' in cluster; the jobs are ps, worker"));
}

TEST(ClusterSpecTest, RejectsInvalidTfConfig) {
  EXPECT_THAT(error_of({}, R"({"cluster": {"ps": ["a:1"]}})"),
              HasSubstr("must have the object task"));
  EXPECT_THAT(error_of({}, with_task(R"({"type": "worker", "index": 2})")),
              HasSubstr("TF_CONFIG: task.index: must be from 0 to 2 for the job worker, got 3"));
  EXPECT_THAT(error_of({}, with_task(R"({"type": "worker", "index": "1"})")),
              HasSubstr("index, a number"));
  EXPECT_THAT(error_of({}, with_task(R"({"type": "evaluator", "index": 0})")),
              HasSubstr("start stoker-eval --follow instead"));
  EXPECT_THAT(error_of({}, with_task(R"({"type": "master", "index": 1})")),
              HasSubstr("must be 0 for the job master"));
  EXPECT_THAT(error_of({}, with_task(R"({"type": "worker", "index": 4294967296})")),
              HasSubstr("must be the number of a task, got 4294967296"));
  EXPECT_THAT(error_of({}, with_task(R"({"type": "ps", "index": -1})")), HasSubstr("got -1"));
  EXPECT_THAT(error_of({}, R"({"cluster": {"ps": ["c:1"]}, "task": {"type": "ps", "index": 0}})"),
              HasSubstr("cluster must have the jobs ps and worker"));
  EXPECT_THAT(
      error_of(
          {},
          R"({"cluster": {"ps": ["a:1"], "gpu": ["c:1"]}, "task": {"type": "ps", "index": 0}})"),
      HasSubstr("unknown job 'gpu'"));
  EXPECT_THAT(
      error_of(
          {}, R"({"cluster": {"worker": [1], "ps": ["a:1"]}, "task": {"type": "ps", "index": 0}})"),
      HasSubstr("cluster.worker must be a list"));
}

}  // namespace
}  // namespace stoker::parameter_server
