#include "daemon/parameter_server/cluster_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::parameter_server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ClusterTask task_of(const ClusterFlags& flags, std::string_view tf_config = "") {
  const auto task = parse_cluster_task(flags, tf_config);
  EXPECT_TRUE(task.ok()) << task.status().to_string();
  EXPECT_TRUE(task.ok() && task->has_value());
  return task.ok() && *task ? **task : ClusterTask();
}

std::string error_of(const ClusterFlags& flags, std::string_view tf_config = "") {
  const auto task = parse_cluster_task(flags, tf_config);
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
  EXPECT_THAT(error_of({.ps_hosts = "a:1", .worker_hosts = "", .job_name = "", .task_index = {}}),
              HasSubstr("--worker_hosts, --job_name, --task_index: required"));
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

TEST(ClusterSpecTest, PrefersFlagsToTfConfig) {
  EXPECT_EQ(task_of(kFlags, with_task(R"({"type": "ps", "index": 0})")).job, Job::kWorker);
}

TEST(ClusterSpecTest, IgnoresTfConfigWithoutParameterServers) {
  for (const std::string_view text :
       {"{", "[1]", R"({"cluster": {}})", R"({"environment": "cloud"})",
        R"({"cluster": {"chief": ["c:1"]}, "task": {"type": "chief", "index": 0}})",
        R"({"cluster": {"worker": ["c:1", "d:1"]}, "task": {"type": "worker", "index": 1}})"}) {
    const auto task = parse_cluster_task({}, text);
    ASSERT_TRUE(task.ok()) << text << ": " << task.status().to_string();
    EXPECT_FALSE(*task) << text;
  }
}

TEST(ClusterSpecTest, RejectsInvalidTfConfig) {
  EXPECT_THAT(error_of({}, R"({"cluster": {"ps": ["a:1"]}})"),
              HasSubstr("objects cluster and task"));
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
