// Runs with parameter servers: the bytes of one process, workers that are lost and return, and the end of
// all when a server is lost.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/listening_sockets.h"
#include "tests/support/reserved_port.h"
#include "tests/support/temporary_directory.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

constexpr const char* kFirstLayer = "0.*";
constexpr const char* kEndless = "endless.yaml";

class ClusterRunTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    // The timeout is shorter than kPatience, for a loss that only it shows.
    std::string config = small_config("distributed: {reduction: ordered, timeout_seconds: 60}\n");
    replace(config, "prefetch_batches: 4}", "prefetch_batches: 4, on_sample_error: fail}");
    replace(config, "train: {max_steps", "train: {max_grad_norm: null, max_steps");
    write_config(config, "cluster.yaml");
    replace(config, "{name: cosine, warmup_steps: 10, min_lr: 0.0001}", "{name: constant}");
    write_config(config, kEndless);
  }
  static void replace(std::string& text, const std::string& before, const std::string& after) {
    const size_t begin = text.find(before);
    ASSERT_NE(begin, std::string::npos) << before;
    text.replace(begin, before.size(), after);
  }

  std::vector<std::string> arguments(const std::string& run,
                                     const std::vector<std::string>& more = {}) const {
    return joined({"--config", path(config_), "--run-dir", run, "--set",
                   "train.max_steps=" + std::to_string(max_steps_), "--set",
                   "train.gradient_accumulation_steps=" + std::to_string(micro_batches_), "--set",
                   "train.micro_batch_size=4", "--set", "checkpoint.save_every_steps=8", "--set",
                   "metrics.log_every_steps=1", "--set", "metrics.tensorboard=false", "--set",
                   "control.socket=null"},
                  joined(settings_, more));
  }
  void train_alone(const std::string& run) const {
    Process process(joined({program("stokerd")}, arguments(run)), path("alone.out"));
    EXPECT_EQ(code_of(process), 0);
  }
  std::string hosts(const std::vector<std::unique_ptr<ReservedPort>>& ports, size_t count) const {
    std::string list;
    for (size_t i = 0; i < count; ++i)
      list += (i == 0 ? "" : ",") + ("127.0.0.1:" + std::to_string(ports[i]->number()));
    return list;
  }
  std::string log_path(const std::string& job, int index) const {
    return path(job + "-" + std::to_string(index) + ".out");
  }
  std::unique_ptr<Process> start(const std::string& run, const std::string& job, int index,
                                 const std::vector<std::string>& more = {}) const {
    const std::string servers = hosts(ps_ports_, num_servers_);
    const std::string workers = hosts(worker_ports_, num_workers_);
    const std::vector<std::string> cluster =
        is_configured_ ? std::vector<std::string>{"--set", "cluster.ps=[" + servers + "]", "--set",
                                                  "cluster.worker=[" + workers + "]"}
                       : std::vector<std::string>{"--ps_hosts", servers, "--worker_hosts", workers};
    const std::vector<std::string> task =
        joined(cluster, {"--job_name", job, "--task_index", std::to_string(index)});
    if (has_tf_config_)
      return std::make_unique<Process>(
          joined({"/usr/bin/env", "TF_CONFIG=" + tf_config(job, index), program("stokerd")},
                 arguments(run, joined(mode_, more))),
          log_path(job, index));
    return std::make_unique<Process>(
        joined(joined({program("stokerd")}, arguments(run, task)), joined(mode_, more)),
        log_path(job, index));
  }
  // Worker 0 is the job `chief`, and worker 1 thus the first one of `worker`.
  std::string tf_config(const std::string& job, int index) const {
    const auto quoted = [](const std::string& text) { return '"' + text + '"'; };
    std::string servers = quoted(hosts(ps_ports_, num_servers_));
    for (size_t at = 0; (at = servers.find(',', at)) != std::string::npos; at += 3)
      servers.replace(at, 1, R"(",")");
    const auto worker = [&](size_t i) {
      return quoted("127.0.0.1:" + std::to_string(worker_ports_[i]->number()));
    };
    const bool is_chief = job == "worker" && index == 0;
    const int number = job == "worker" && !is_chief ? index - 1 : index;
    return R"({"cluster":{"ps":[)" + servers + R"(],"chief":[)" + worker(0) + R"(],"worker":[)" +
           worker(1) + R"(]},"task":{"type":)" + quoted(is_chief ? "chief" : job) + R"(,"index":)" +
           std::to_string(number) + "}}";
  }
  // Servers, then workers. The chief is started when the others wait for it: otherwise a short run may
  // have ended before a worker joins it. A run without an end has all its workers.
  std::vector<std::unique_ptr<Process>> start_all(const std::string& run) const {
    std::vector<std::unique_ptr<Process>> tasks(num_servers_ + num_workers_);
    const size_t num_waiting = count_in_logs("group starting") + tasks.size() - 1;
    const size_t num_joined = count_in_logs("cluster worker joined") + num_servers_ * num_workers_;
    const size_t num_started = count_in_logs("training started") + num_workers_;
    for (size_t i = 0; i < num_servers_; ++i) tasks[i] = start(run, "ps", static_cast<int>(i));
    for (size_t i = 1; i < num_workers_; ++i)
      tasks[num_servers_ + i] = start(run, "worker", static_cast<int>(i));
    const auto have_logged = [&](const char* event, size_t count) {
      return wait_until(kPatience, [&] { return count_in_logs(event) >= count; });
    };
    EXPECT_TRUE(have_logged("group starting", num_waiting));
    tasks[num_servers_] = start(run, "worker", 0);
    if (config_ == kEndless) {
      EXPECT_TRUE(have_logged("cluster worker joined", num_joined));
      EXPECT_TRUE(have_logged("training started", num_started));
    }
    return tasks;
  }
  size_t count_in_logs(const std::string& event) const {
    size_t count = 0;
    for (size_t i = 0; i < num_servers_; ++i)
      count += count_of(text_if_exists(log_path("ps", static_cast<int>(i))), event);
    for (size_t i = 0; i < num_workers_; ++i)
      count += count_of(text_if_exists(log_path("worker", static_cast<int>(i))), event);
    return count;
  }
  // Of the last line with this event.
  static uint64_t step_of_last(const std::string& log, const std::string& event) {
    const std::string text = text_of(log);
    const size_t line = text.rfind(event);
    const size_t step = line == std::string::npos ? line : text.find(" step=", line);
    if (step == std::string::npos) throw std::runtime_error(log + ": has no step of: " + event);
    return std::stoull(text.substr(step + 6));
  }
  static void expect_codes(const std::vector<std::unique_ptr<Process>>& tasks, int code) {
    for (const auto& task : tasks)
      EXPECT_EQ(code_of(*task), code) << task->log() << ":\n" << text_of(task->log());
  }
  static void expect_same_run(const std::string& run, const std::string& other) {
    expect_same_checkpoint(
        run, other, {"model.safetensors", "optimizer.safetensors", "trainer_state.safetensors"});
  }
  static bool has_trained(const std::string& run, uint64_t steps) {
    return wait_until(kPatience, [&] { return newest_record_step(run) >= steps; });
  }
  // Whether this task, started `starts` times, is connected to the servers.
  bool has_connected(const std::string& job, int index, int starts) const {
    return wait_until(kPatience, [&] {
      return count_of(text_if_exists(log_path(job, index)), "training started") >=
             static_cast<size_t>(starts);
    });
  }
  // One gradient per step.
  void configure_async() {
    mode_ = {"--replicas", "async"};
    micro_batches_ = 1;
  }
  // Without an end.
  void configure_endless() {
    config_ = kEndless;
    max_steps_ = 1'000'000;
  }

  std::string config_ = "cluster.yaml";
  size_t num_servers_ = 2, num_workers_ = 2;
  std::vector<std::string> mode_{"--replicas", "sync"};
  std::vector<std::string> settings_;  // of all processes
  bool is_configured_ = false;         // the addresses are in the configuration
  bool has_tf_config_ = false;  // the addresses and the task are in TF_CONFIG; of two workers
  int micro_batches_ = 2;       // per step
  uint64_t max_steps_ = 24;

 private:
  static std::vector<std::unique_ptr<ReservedPort>> reserve_ports() {
    std::vector<std::unique_ptr<ReservedPort>> ports;
    for (int i = 0; i < 4; ++i) ports.push_back(std::make_unique<ReservedPort>());
    return ports;
  }
  const std::vector<std::unique_ptr<ReservedPort>> ps_ports_ = reserve_ports();
  const std::vector<std::unique_ptr<ReservedPort>> worker_ports_ = reserve_ports();
};

TEST_F(ClusterRunTest, TrainsSameBytesAsOneProcess) {
  train_alone(run_dir("alone"));
  expect_codes(start_all(run_dir()), 0);
  expect_same_run(run_dir(), run_dir("alone"));
  EXPECT_EQ(num_records(run_dir()), num_records(run_dir("alone")));
  EXPECT_THAT(text_of(log_path("ps", 0)), Not(HasSubstr("cluster worker lost")));
  EXPECT_TRUE(fs::exists(run_dir() + "/exit_status.json"));
}

TEST_F(ClusterRunTest, TakesAddressesAndModeOfConfiguration) {
  is_configured_ = true;
  mode_ = {"--set", "cluster.replicas=sync", "--set", "cluster.placement=bytes"};
  expect_codes(start_all(run_dir()), 0);
  EXPECT_EQ(newest_step(run_dir()), max_steps_);
  const auto without_task =
      Process(joined(joined({program("stokerd")}, arguments(run_dir())),
                     {"--set", "cluster.ps=[a:1]", "--set", "cluster.worker=[b:1]"}),
              path("alone.out"))
          .wait(kPatience);
  ASSERT_TRUE(without_task);
  EXPECT_EQ(without_task->code, 64);
  EXPECT_THAT(text_of(path("alone.out")), HasSubstr("--job_name, --task_index: required"));
}

TEST_F(ClusterRunTest, TakesTasksOfTfConfig) {
  has_tf_config_ = true;
  train_alone(run_dir("alone"));
  expect_codes(start_all(run_dir()), 0);
  expect_same_run(run_dir(), run_dir("alone"));
}

// G is no power of two.
TEST_F(ClusterRunTest, TrainsSameBytesWithOneOrThreeServers) {
  settings_ = {"--set", "train.max_grad_norm=0.2"};
  micro_batches_ = 3;
  train_alone(run_dir("alone"));
  for (const size_t servers : {1, 3}) {
    num_servers_ = servers;
    num_workers_ = servers + 1;
    const std::string run = run_dir("servers-" + std::to_string(servers));
    expect_codes(start_all(run), 0);
    expect_same_run(run, run_dir("alone"));
  }
}

// The norm of the gradients is that of both servers.
TEST_F(ClusterRunTest, ClipsAsOneProcess) {
  settings_ = {"--set", "train.max_grad_norm=0.2", "--set", "train.max_grad_value=0.1"};
  num_workers_ = 3;
  train_alone(run_dir("alone"));
  expect_codes(start_all(run_dir()), 0);
  expect_same_run(run_dir(), run_dir("alone"));
  max_steps_ += 8;  // from a checkpoint
  train_alone(run_dir("alone"));
  expect_codes(start_all(run_dir()), 0);
  expect_same_run(run_dir(), run_dir("alone"));
}

TEST_F(ClusterRunTest, ClipsAsynchronousUpdates) {
  settings_ = {"--set", "train.max_grad_norm=0.2"};
  configure_async();
  num_workers_ = 1;  // has the updates of one process
  max_steps_ = 60;
  train_alone(run_dir("alone"));
  expect_codes(start_all(run_dir()), 0);
  expect_same_run(run_dir(), run_dir("alone"));
  EXPECT_THAT(text_of(run_dir() + "/metrics/train.jsonl"),
              ContainsRegex(R"("grad_norm":(0\.[2-9]|[1-9][0-9.]*[,}]))"));
}

// Frozen parameters are those of the chief, which are not initial ones.
TEST_F(ClusterRunTest, TrainsSameBytesWithFrozenParameters) {
  train_alone(run_dir("pretrained"));
  settings_ = {"--set",
               "model.pretrained.path=" + run_dir("pretrained") + "/checkpoints/step-000000024",
               "--set", "model.freeze=[" + std::string(kFirstLayer) + "]"};
  train_alone(run_dir("alone"));
  expect_codes(start_all(run_dir()), 0);
  expect_same_run(run_dir(), run_dir("alone"));
}

// Each server has a part of each group, and of one group nothing.
TEST_F(ClusterRunTest, TrainsSameBytesWithMuonAndParameterGroups) {
  settings_ = {"--set",
               "optimizer={name: muon, lr: 0.003, param_groups: [{params: '0.*', kind: bias, "
               "lr_scale: 2, weight_decay: 0}]}"};
  train_alone(run_dir("alone"));
  expect_codes(start_all(run_dir()), 0);
  expect_same_run(run_dir(), run_dir("alone"));
}

// A stopped worker is not lost. If it has a micro-batch, a step needs a backup; a save does not wait for it.
TEST_F(ClusterRunTest, TrainsAndSavesSameBytesWhileWorkerIsStopped) {
  settings_ = {"--set", "distributed.timeout_seconds=100"};
  num_workers_ = 3;
  configure_endless();
  auto tasks = start_all(run_dir());
  const auto stop_during_saves = [&](size_t worker) {
    ASSERT_TRUE(has_trained(run_dir(), newest_record_step(run_dir()) + 4));
    tasks[worker]->signal(SIGSTOP);
    for (int i = 0; i < 3; ++i) {  // of the first one the worker can have been a part
      const uint64_t saved = newest_step(run_dir());
      ASSERT_TRUE(wait_until(kPatience, [&] { return newest_step(run_dir()) > saved; }));
    }
    ASSERT_TRUE(has_trained(run_dir(), newest_step(run_dir()) + 4));
  };
  for (const size_t worker : {3, 4, 3}) {
    ASSERT_NO_FATAL_FAILURE(stop_during_saves(worker));
    tasks[worker]->signal(SIGCONT);
  }
  EXPECT_TRUE(wait_until(kPatience, [&] { return count_in_logs("gradient dropped") > 0; }));
  ASSERT_NO_FATAL_FAILURE(stop_during_saves(4));
  tasks[2]->signal(SIGTERM);  // the chief, so that the last checkpoint has these steps
  EXPECT_EQ(code_of(*tasks[2]), 0);
  tasks[4]->signal(SIGCONT);
  expect_codes(tasks, 0);
  EXPECT_EQ(count_in_logs("cluster worker lost"), 0u);
  max_steps_ = newest_step(run_dir());
  train_alone(run_dir("alone"));
  expect_same_run(run_dir(), run_dir("alone"));
}

TEST_F(ClusterRunTest, TrainsSameBytesWhenWorkerIsKilledAndReturns) {
  settings_ = {"--set", "train.max_grad_norm=0.2"};
  configure_endless();
  auto tasks = start_all(run_dir());
  auto& worker = tasks.back();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(has_trained(run_dir(), newest_record_step(run_dir()) + 4))
        << text_of(tasks[2]->log());
    ASSERT_TRUE(worker->kill());
    worker = start(run_dir(), "worker", 1);
    ASSERT_TRUE(has_connected("worker", 1, i + 2));
  }
  ASSERT_TRUE(has_trained(run_dir(), newest_record_step(run_dir()) + 4));
  tasks[2]->signal(SIGTERM);  // the chief saves, and ends the run
  expect_codes(tasks, 0);
  EXPECT_THAT(text_of(log_path("ps", 0)),
              AllOf(HasSubstr("cluster worker joined"), HasSubstr("cluster worker lost"),
                    HasSubstr("cluster worker returned"), HasSubstr("start=3")));
  max_steps_ = newest_step(run_dir());
  train_alone(run_dir("alone"));
  expect_same_run(run_dir(), run_dir("alone"));
}

// One that a sample has ended is replaced, as in one process.
TEST_F(ClusterRunTest, TrainsSameBytesWhenSandboxedReaderIsKilled) {
  configure_endless();
  auto tasks = start_all(run_dir());
  for (const size_t worker : {2, 3, 2}) {
    ASSERT_TRUE(has_trained(run_dir(), newest_record_step(run_dir()) + 4));
    std::vector<pid_t> readers;
    ASSERT_TRUE(wait_until(kPatience, [&] {
      readers = children_of(tasks[worker]->pid(), "stoker-feed");
      return !readers.empty();
    }));
    ASSERT_EQ(readers.size(), 1u);
    ASSERT_EQ(::kill(readers.front(), SIGKILL), 0);
  }
  ASSERT_TRUE(has_trained(run_dir(), newest_record_step(run_dir()) + 4));
  tasks[2]->signal(SIGTERM);
  expect_codes(tasks, 0);
  max_steps_ = newest_step(run_dir());
  train_alone(run_dir("alone"));
  expect_same_run(run_dir(), run_dir("alone"));
}

TEST_F(ClusterRunTest, ContinuesAsOneProcess) {
  configure_endless();
  auto tasks = start_all(run_dir());
  ASSERT_TRUE(has_trained(run_dir(), 3));
  tasks[2]->signal(SIGTERM);
  expect_codes(tasks, 0);
  max_steps_ = newest_step(run_dir()) + 20;
  Process process(joined({program("stokerd")}, arguments(run_dir())), path("continued.out"));
  EXPECT_EQ(code_of(process), 0);
  train_alone(run_dir("alone"));
  expect_same_run(run_dir(), run_dir("alone"));
}

// The tickets of its steps no longer follow from their number alone.
TEST_F(ClusterRunTest, ContinuesWithOtherBatchSizeAsOneProcess) {
  train_alone(run_dir());
  train_alone(run_dir("alone"));
  const std::vector<std::string> change{"--set", "train.micro_batch_size=6"};
  for (const std::vector<std::string>& flag :
       {std::vector<std::string>{"--allow-batch-change"}, std::vector<std::string>{}}) {
    max_steps_ += 16;
    settings_ = joined(change, flag);
    expect_codes(start_all(run_dir()), 0);
    train_alone(run_dir("alone"));
    expect_same_run(run_dir(), run_dir("alone"));
    EXPECT_EQ(text_of(run_dir() + "/batch_sizes.json"),
              text_of(run_dir("alone") + "/batch_sizes.json"));
  }
  const auto seen = [this](const std::string& run) {
    const std::string key = "\"samples_seen\":";
    std::vector<uint64_t> all;
    std::istringstream records(text_of(run_dir(run) + "/metrics/train.jsonl"));
    for (std::string line; std::getline(records, line);)
      all.push_back(std::stoull(line.substr(line.find(key) + key.size())));
    return all;
  };
  EXPECT_EQ(seen("run"), seen("alone"));
  EXPECT_EQ(seen("run").back(), 24u * 8 + 32 * 12);
}

TEST_F(ClusterRunTest, RejectsOtherBatchSizeWithoutFlag) {
  train_alone(run_dir());
  settings_ = {"--set", "train.micro_batch_size=6"};
  num_servers_ = num_workers_ = 1;
  auto server = start(run_dir(), "ps", 0);
  auto chief = start(run_dir(), "worker", 0);
  EXPECT_EQ(code_of(*chief), 78);
  EXPECT_THAT(text_of(log_path("worker", 0)), HasSubstr("--allow-batch-change continues with it"));
  server->signal(SIGTERM);
  (void)code_of(*server);
}

TEST_F(ClusterRunTest, SavesByTime) {
  settings_ = {"--set", "checkpoint.save_every_steps=null", "--set",
               "checkpoint.save_every_seconds=0.1"};
  configure_endless();
  auto tasks = start_all(run_dir());
  for (int i = 0; i < 3; ++i) {
    const uint64_t step = newest_step(run_dir());
    ASSERT_TRUE(wait_until(kPatience, [&] { return newest_step(run_dir()) > step; }));
  }
  tasks[2]->signal(SIGTERM);
  expect_codes(tasks, 0);
  max_steps_ = newest_step(run_dir());
  train_alone(run_dir("alone"));
  expect_same_run(run_dir(), run_dir("alone"));
}

// Servers, workers, and the processes that read data for these.
TEST_F(ClusterRunTest, ListensOnInterfaceOfServerOnly) {
  configure_endless();
  auto tasks = start_all(run_dir());
  ASSERT_TRUE(has_trained(run_dir(), 1));
  for (const auto& task : tasks) {
    const std::vector<ListeningSocket> sockets = listening_sockets(task->pid());
    EXPECT_FALSE(sockets.empty()) << task->log();
    for (const ListeningSocket& socket : sockets)
      EXPECT_EQ(socket.address, "127.0.0.1") << task->log() << ", port " << socket.port;
  }
  tasks[2]->signal(SIGTERM);
  expect_codes(tasks, 0);
}

TEST_F(ClusterRunTest, SavesLastStepWhenAllTasksAreStopped) {
  configure_endless();
  auto tasks = start_all(run_dir());
  ASSERT_TRUE(has_trained(run_dir(), 10));
  for (const auto& task : tasks) task->signal(SIGTERM);  // servers first
  expect_codes(tasks, 0);
  EXPECT_EQ(newest_step(run_dir()), newest_record_step(run_dir()));
  for (const auto& task : tasks)
    EXPECT_THAT(text_of(task->log()), ContainsRegex("daemon exited +state=stopped step=[1-9]"));
}

TEST_F(ClusterRunTest, ShowsTasksInStatusOfChief) {
  mode_ = {"--replicas", "sync", "--set", "control.socket=auto"};
  configure_endless();
  auto tasks = start_all(run_dir());
  ASSERT_TRUE(has_trained(run_dir(), 4));
  const auto shows = [&](const std::string& text) {
    return wait_until(kPatience, [&] {
      const auto ended = ctl(run_dir(), {"status"}, "ctl").wait(kPatience);
      return ended && ended->code == 0 && text_of(path("ctl.out")).find(text) != std::string::npos;
    });
  };
  EXPECT_TRUE(shows("sync, 2 parameter servers")) << text_of(path("ctl.out"));
  ASSERT_TRUE(tasks.back()->kill());
  EXPECT_TRUE(shows("1 lost")) << text_of(path("ctl.out"));
  tasks[2]->signal(SIGTERM);
  tasks.pop_back();
  expect_codes(tasks, 0);
}

TEST_F(ClusterRunTest, PausesUntilItIsResumed) {
  for (const std::string replicas : {"sync", "async"}) {
    const std::string run = run_dir(replicas);
    mode_ = {"--replicas",          replicas, "--set",
             "control.socket=auto", "--set",  "checkpoint.save_every_steps=null"};
    micro_batches_ = replicas == "async" ? 1 : 2;  // an asynchronous step has one gradient
    configure_endless();
    auto tasks = start_all(run);
    ASSERT_TRUE(has_trained(run, 4));
    const auto code_of_command = [&](const std::vector<std::string>& command) {
      Process process = ctl(run, command, replicas + '-' + command[0]);
      return code_of(process);
    };
    EXPECT_EQ(code_of_command({"pause"}), 0);
    const std::string paused = text_of(path(replicas + "-pause.out"));
    EXPECT_EQ(code_of_command({"checkpoint"}), 0);
    const uint64_t saved = newest_step(run);
    EXPECT_EQ(paused, "paused at step " + std::to_string(saved) + "\n");
    EXPECT_EQ(newest_record_step(run), saved);
    EXPECT_EQ(code_of_command({"status"}), 0);
    EXPECT_THAT(text_of(path(replicas + "-status.out")), HasSubstr("paused"));
    EXPECT_EQ(code_of_command({"resume"}), 0);
    ASSERT_TRUE(has_trained(run, saved + 4));
    EXPECT_EQ(code_of_command({"pause"}), 0);
    EXPECT_EQ(code_of_command({"stop"}), 0);
    expect_codes(tasks, 0);
    EXPECT_EQ(newest_step(run), newest_record_step(run));
  }
}

// One process trains up to the step of the change, and from there with the new value as configured.
TEST_F(ClusterRunTest, ChangesSettingsAtSameStepOnAllServers) {
  for (const std::string replicas : {"sync", "async"}) {
    const std::string run = run_dir(replicas), alone = run_dir("alone-" + replicas);
    mode_ = {"--replicas", replicas, "--set", "control.socket=auto"};
    micro_batches_ = replicas == "async" ? 1 : 2;
    num_workers_ =
        replicas == "async" ? 1 : 2;  // the updates of one worker are those of one process
    configure_endless();
    auto tasks = start_all(run);
    ASSERT_TRUE(has_trained(run, 4));
    const auto step_of_command = [&](const std::vector<std::string>& command) -> uint64_t {
      Process process = ctl(run, joined({"--json"}, command), replicas + "-ctl");
      EXPECT_EQ(code_of(process), 0) << text_of(process.log());
      const std::string reply = text_of(process.log());
      const size_t at = reply.rfind(R"("step":)");
      return at == std::string::npos ? 0 : std::stoull(reply.substr(at + 7));
    };
    const uint64_t changed = step_of_command({"set", "optimizer.lr", "0.0005"});
    ASSERT_GE(changed, 4u);
    ASSERT_TRUE(has_trained(run, changed + 4));
    const uint64_t last = step_of_command({"pause"}) + 5;
    EXPECT_GE(step_of_command({"set", "train.max_steps", std::to_string(last)}), changed + 4);
    (void)step_of_command({"resume"});
    expect_codes(tasks, 0);
    EXPECT_EQ(newest_step(run), last);
    EXPECT_EQ(newest_record_step(run), last);
    EXPECT_THAT(text_of(run + "/setting_changes.jsonl"),
                AllOf(HasSubstr("\"step\":" + std::to_string(changed) + R"(,"key":"optimizer.lr")"),
                      HasSubstr(R"("key":"train.max_steps")")));

    max_steps_ = changed;
    train_alone(alone);
    max_steps_ = last;
    settings_ = {"--set", "optimizer.lr=0.0005"};
    train_alone(alone);
    expect_same_run(run, alone);
    settings_ = {};
  }
}

TEST_F(ClusterRunTest, ContinuesWithSettingsAfterLossOfChiefAndOfAllTasks) {
  mode_ = {"--replicas",          "sync",  "--set",
           "control.socket=auto", "--set", "checkpoint.save_every_steps=null"};
  configure_endless();
  auto tasks = start_all(run_dir());
  ASSERT_TRUE(has_trained(run_dir(), 4));
  const auto expect_success = [&](const std::vector<std::string>& command) {
    const size_t before = text_if_exists(path("ctl.out")).size();
    Process process = ctl(run_dir(), command, "ctl");
    EXPECT_EQ(code_of(process), 0) << text_of(process.log());
    return text_of(process.log()).substr(before);
  };
  expect_success({"checkpoint"});
  expect_success({"set", "optimizer.lr", "0.0005"});
  ASSERT_TRUE(tasks[2]->kill());
  tasks[2] = start(run_dir(), "worker", 0);
  ASSERT_TRUE(has_connected("worker", 0, 2));
  ASSERT_TRUE(has_trained(run_dir(), newest_record_step(run_dir()) + 4));
  EXPECT_THAT(expect_success({"get", "optimizer.lr"}), HasSubstr("live, configured: 0.003"));
  EXPECT_TRUE(wait_until(kPatience, [&] {
    return count_of(text_if_exists(run_dir() + "/setting_changes.jsonl"), "optimizer.lr") == 1;
  }));

  expect_success({"checkpoint"});
  for (const auto& task : tasks) task->signal(SIGKILL);
  for (const auto& task : tasks) ASSERT_TRUE(task->wait(kPatience));
  tasks = start_all(run_dir());
  ASSERT_TRUE(has_trained(run_dir(), newest_step(run_dir()) + 4));
  EXPECT_THAT(expect_success({"get", "optimizer.lr"}), HasSubstr("live, configured: 0.003"));
  EXPECT_THAT(text_of(log_path("worker", 0)), HasSubstr("live setting resumed key=optimizer.lr"));
  expect_success({"unset", "optimizer.lr"});
  EXPECT_THAT(expect_success({"get", "optimizer.lr"}),
              AllOf(HasSubstr("0.003"), Not(HasSubstr("live"))));
  expect_success({"stop"});
  expect_codes(tasks, 0);
}

// Nothing else saves before the end.
TEST_F(ClusterRunTest, SavesAndStopsOnCommand) {
  mode_ = {"--replicas",          "sync",  "--set",
           "control.socket=auto", "--set", "checkpoint.save_every_steps=null"};
  configure_endless();
  auto tasks = start_all(run_dir());
  ASSERT_TRUE(has_trained(run_dir(), 4));
  const auto code_of_command = [&](const std::vector<std::string>& command) {
    Process process = ctl(run_dir(), command, "ctl");
    return code_of(process);
  };
  EXPECT_EQ(newest_step(run_dir()), 0u);
  EXPECT_EQ(code_of_command({"checkpoint"}), 0);
  const uint64_t saved = newest_step(run_dir());
  EXPECT_GE(saved, 4u);
  EXPECT_EQ(text_of(path("ctl.out")), "saved at step " + std::to_string(saved) + "\n");

  ASSERT_TRUE(has_trained(run_dir(), saved + 4));
  EXPECT_EQ(newest_step(run_dir()), saved);
  EXPECT_EQ(code_of_command({"stop"}), 0);
  expect_codes(tasks, 0);
  max_steps_ = newest_step(run_dir());
  EXPECT_EQ(max_steps_, newest_record_step(run_dir()));
  EXPECT_GE(max_steps_, saved + 4);
  train_alone(run_dir("alone"));
  expect_same_run(run_dir(), run_dir("alone"));
}

TEST_F(ClusterRunTest, ExitsOnLossOfServerAndResumes) {
  configure_endless();
  for (const size_t lost : {1, 0}) {
    auto tasks = start_all(run_dir());
    const uint64_t step = newest_step(run_dir());
    ASSERT_TRUE(wait_until(kPatience, [&] { return newest_step(run_dir()) > step; }));
    ASSERT_TRUE(tasks[lost]->kill());
    tasks.erase(tasks.begin() + static_cast<std::ptrdiff_t>(lost));
    expect_codes(tasks, 73);
  }
  max_steps_ = newest_step(run_dir()) + 4;
  expect_codes(start_all(run_dir()), 0);
  EXPECT_EQ(newest_step(run_dir()), max_steps_);
  train_alone(run_dir("alone"));
  expect_same_run(run_dir(), run_dir("alone"));
  EXPECT_EQ(num_records(run_dir()), num_records(run_dir("alone")));
}

TEST_F(ClusterRunTest, ContinuesWithoutChiefUntilItReturns) {
  configure_endless();
  auto tasks = start_all(run_dir());
  ASSERT_TRUE(has_trained(run_dir(), 10));
  ASSERT_TRUE(tasks[2]->kill());
  tasks[2] = start(run_dir(), "worker", 0);
  ASSERT_TRUE(has_connected("worker", 0, 2));
  const uint64_t step = newest_record_step(run_dir());
  ASSERT_TRUE(has_trained(run_dir(), step + 10));
  tasks[2]->signal(SIGTERM);
  expect_codes(tasks, 0);
  max_steps_ = newest_step(run_dir());
  train_alone(run_dir("alone"));
  expect_same_run(run_dir(), run_dir("alone"));
  EXPECT_EQ(num_records(run_dir()), num_records(run_dir("alone")));
}

TEST_F(ClusterRunTest, ContinuesAsynchronousRunWithoutChief) {
  configure_async();
  configure_endless();
  auto tasks = start_all(run_dir());
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_step(run_dir()) > 0; }));
  ASSERT_TRUE(tasks[2]->kill());
  const uint64_t saved = newest_step(run_dir());
  const uint64_t recorded = newest_record_step(run_dir());
  Process status = ctl(run_dir(), {"status"}, "status");
  EXPECT_EQ(code_of(status), 69);
  EXPECT_THAT(log_of("status"),
              ContainsRegex("the chief \\(worker 0\\) was killed or its machine crashed; still "
                            "running: worker 1 \\(127[^ ]+\\), ps 0 \\(127[^ ]+\\), ps 1 "
                            "\\(127[^ ]+\\); nothing is saved until the chief is started again"));
  EXPECT_EQ(newest_step(run_dir()), saved);
  EXPECT_EQ(newest_record_step(run_dir()), recorded);
  tasks[2] = start(run_dir(), "worker", 0);
  ASSERT_TRUE(has_connected("worker", 0, 2));
  EXPECT_GT(step_of_last(log_path("ps", 0), "cluster worker returned"),
            step_of_last(log_path("ps", 0), "cluster worker lost"));
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_step(run_dir()) > saved; }));
  tasks[2]->signal(SIGTERM);
  expect_codes(tasks, 0);
}

// Without the bound, four workers have more updates between.
TEST_F(ClusterRunTest, KeepsBoundOfStaleness) {
  configure_async();
  mode_ = joined(mode_, {"--max-staleness", "1", "--set", "control.socket=auto"});
  num_workers_ = 4;
  configure_endless();
  auto tasks = start_all(run_dir());
  ASSERT_TRUE(has_trained(run_dir(), 400));
  Process status = ctl(run_dir(), {"status"}, "status");
  EXPECT_EQ(code_of(status), 0);
  EXPECT_THAT(log_of("status"), ContainsRegex("largest staleness [01][^0-9]"));
  tasks[2]->signal(SIGTERM);
  expect_codes(tasks, 0);
}

TEST_F(ClusterRunTest, TrainsAsynchronously) {
  mode_ = {"--replicas", "async", "--max-staleness", "2"};
  micro_batches_ = 1;
  max_steps_ = 200;
  auto tasks = start_all(run_dir());
  expect_codes(tasks, 0);
  EXPECT_EQ(newest_step(run_dir()), 200u);
  EXPECT_EQ(num_records(run_dir()), 200u);
  EXPECT_THAT(text_of(run_dir() + "/metrics/train.jsonl"),
              ContainsRegex(R"("data_wait_ms":[0-9.e-]*[1-9])"));
  Process batch = ctl(run_dir(), {"show-batch", "5"}, "show-batch");
  EXPECT_EQ(code_of(batch), 78);
  EXPECT_THAT(log_of("show-batch"), HasSubstr("step 5 is of an asynchronous run"));
}

TEST_F(ClusterRunTest, WarnsOfMomentumWithoutBoundOfStaleness) {
  configure_async();
  settings_ = {"--set", "optimizer={name: sgd, lr: 0.01, momentum: 0.9}"};
  const std::string warning = "settings contradictory key=cluster.max_staleness";
  expect_codes(start_all(run_dir()), 0);
  EXPECT_EQ(count_in_logs(warning), 1u);
  mode_ = joined(mode_, {"--max-staleness", "1"});
  expect_codes(start_all(run_dir("bounded")), 0);
  EXPECT_EQ(count_in_logs(warning), 1u);
}

TEST_F(ClusterRunTest, ReportsBatchNormAsReasonWhyResultsDependOnWorkers) {
  settings_ = {
      "--set",
      "model={name: sequential, layers: [linear: {out_features: 32}, batch_norm, relu, linear]}"};
  max_steps_ = 4;
  expect_codes(start_all(run_dir()), 0);
  EXPECT_EQ(count_in_logs("results depend on the number of ranks"), 1u);
  EXPECT_THAT(text_of(log_path("worker", 0)),
              HasSubstr("reason=\"batch norm's statistics, such as 1.running_mean,"));
}

// A stopped run is not trained any further by another start, whatever task comes first.
TEST_F(ClusterRunTest, IsNotContinuedAfterEarlyStop) {
  configure_endless();
  settings_ = {"--set", "eval.early_stopping.stopping_threshold=1000", "--set",
               "eval.poll_interval_seconds=0.2"};
  for (const char* const replicas : {"sync", "async"}) {
    const std::string run = run_dir(replicas);
    if (replicas == std::string("async")) configure_async();
    auto tasks = start_all(run);
    Process follower({program("stoker-eval"), "--run-dir", run, "--follow"}, path("follower.out"));
    expect_codes(tasks, 0);
    EXPECT_EQ(code_of(follower), 0) << text_of(path("follower.out"));
    const uint64_t step = newest_step(run);
    const size_t num_finished = count_in_logs("run already finished");
    tasks.clear();
    for (const int index : {0, 1})
      for (const char* const job : {"ps", "worker"}) tasks.push_back(start(run, job, index));
    expect_codes(tasks, 0);
    EXPECT_EQ(newest_step(run), step);
    EXPECT_EQ(count_in_logs("run already finished"), num_finished + 4);
    EXPECT_THAT(text_of(run + "/exit_status.json"),
                ContainsRegex(R"("state":"finished".*"reason":"stopped early: )"));
  }
}

// Which a supervisor starts again when the run has just ended.
TEST_F(ClusterRunTest, EndsTaskThatStartsAfterTheRunHasEnded) {
  expect_codes(start_all(run_dir()), 0);
  std::vector<std::unique_ptr<Process>> late;
  late.push_back(start(run_dir(), "worker", 1));
  late.push_back(start(run_dir(), "ps", 1));
  expect_codes(late, 0);
  for (const auto& task : late)
    EXPECT_THAT(text_of(task->log()),
                HasSubstr("run already finished reason=\"max_steps reached\""));
}

TEST_F(ClusterRunTest, NamesMissingChiefAndEndsAtStartTimeout) {
  settings_ = {"--set", "distributed.start_timeout_seconds=12"};
  std::vector<std::unique_ptr<Process>> tasks;
  for (const int index : {0, 1}) tasks.push_back(start(run_dir(), "ps", index));
  tasks.push_back(start(run_dir(), "worker", 1));
  expect_codes(tasks, 73);
  const std::string line = "group start delayed missing=\"the chief \\(worker 0, 127[^ ]+\\)\"";
  for (const auto& task : tasks)
    EXPECT_THAT(text_of(task->log()),
                AllOf(ContainsRegex(line), HasSubstr("has not started in time")));
}

TEST_F(ClusterRunTest, EndsAllTasksAtStartTimeoutOfMissingServer) {
  settings_ = {"--set", "distributed.start_timeout_seconds=8"};
  std::vector<std::unique_ptr<Process>> tasks;
  tasks.push_back(start(run_dir(), "ps", 0));
  for (const int index : {0, 1}) tasks.push_back(start(run_dir(), "worker", index));
  expect_codes(tasks, 73);
  EXPECT_THAT(text_of(log_path("worker", 0)), ContainsRegex("ps 1 \\(127[^ ]+\\) has not started"));
}

// The others, which have no chief to wait for, end with its reason.
TEST_F(ClusterRunTest, EndsAllTasksWhenChiefCannotStart) {
  std::vector<std::unique_ptr<Process>> tasks;
  for (const int index : {0, 1}) tasks.push_back(start(run_dir(), "ps", index));
  tasks.push_back(start(run_dir(), "worker", 1));
  auto chief = start(run_dir(), "worker", 0, {"--resume", path("missing")});
  EXPECT_EQ(code_of(*chief), 78);
  expect_codes(tasks, 73);
  for (const auto& task : tasks)
    EXPECT_THAT(text_of(task->log()), ContainsRegex("worker 0 \\(127[^ ]+\\) failed: not found: "));
}

TEST_F(ClusterRunTest, EndsAllTasksWhenChiefHasOtherSettings) {
  std::vector<std::unique_ptr<Process>> tasks;
  for (const int index : {0, 1}) tasks.push_back(start(run_dir(), "ps", index));
  tasks.push_back(start(run_dir(), "worker", 1));
  auto chief = start(run_dir(), "worker", 0, {"--set", "optimizer.lr=0.5"});
  EXPECT_EQ(code_of(*chief), 78);
  expect_codes(tasks, 73);
  for (const auto& task : tasks)
    EXPECT_THAT(text_of(task->log()),
                ContainsRegex("worker 0 \\(127[^ ]+\\) failed: .*optimizer.lr: is '0.5' here"));
}

// A sample that worker 1 cannot read, while the chief is stopped.
TEST_F(ClusterRunTest, EndsAllTasksForSampleThatCannotBeRead) {
  constexpr int kRowsPerTicket = 4, kBadTicket = 600;
  std::ofstream table(path("table.csv"));
  table << "a,b,kind\n";
  for (int row = 0; row < kRowsPerTicket * (kBadTicket + 10); ++row)
    table << (row / kRowsPerTicket == kBadTicket ? "many" : "1") << "," << row % 5 << "," << row % 3
          << "\n";
  table.close();
  configure_async();
  configure_endless();
  write_config(
      "data: {train: {format: csv, fields: {label: kind}, path: " + path("table.csv") + R"(}}
run: {seed: 1, rng: per_ticket}
feed: {shuffle: none, on_sample_error: fail}
model: {name: mlp, hidden_sizes: [16]}
task: {name: classification}
train: {max_steps: 1, max_grad_norm: null, device: cpu, num_threads: 1}
)",
      kEndless);
  auto tasks = start_all(run_dir());
  // Worker 1 trains alone once the chief has sent its initial parameters to all servers.
  ASSERT_TRUE(
      wait_until(kPatience, [&] { return count_in_logs("cluster initialized") >= num_servers_; }));
  tasks[2]->signal(SIGSTOP);
  EXPECT_EQ(code_of(*tasks[3]), 65);
  tasks[2]->signal(SIGCONT);
  EXPECT_EQ(code_of(*tasks[2]), 65) << "the chief ends as the task that is the cause";
  // The chief learns of the failure of worker 1, or reads the ticket itself before.
  EXPECT_THAT(text_of(run_dir() + "/exit_status.json"),
              AllOf(HasSubstr(R"("exit_code":65)"), HasSubstr("ticket 600, sample 2400")));
  tasks.resize(2);
  expect_codes(tasks, 73);
  for (const auto& task : tasks)
    EXPECT_THAT(text_of(task->log()),
                ContainsRegex("worker [01] \\(127[^ ]+\\) failed: .*ticket 600"));
}

TEST_F(ClusterRunTest, ContinuesAsynchronousRunWithoutLostWorker) {
  configure_async();
  configure_endless();
  auto tasks = start_all(run_dir());
  ASSERT_TRUE(has_trained(run_dir(), 20));
  ASSERT_TRUE(tasks.back()->kill());
  ASSERT_TRUE(has_trained(run_dir(), newest_record_step(run_dir()) + 20));
  tasks.back() = start(run_dir(), "worker", 1);
  ASSERT_TRUE(has_connected("worker", 1, 2));
  ASSERT_TRUE(has_trained(run_dir(), newest_record_step(run_dir()) + 20));
  tasks[2]->signal(SIGTERM);
  expect_codes(tasks, 0);
}

// That the cluster is then one of the configuration is no other run.
TEST_F(ClusterRunTest, ResumesAsynchronousRunAfterLossOfServer) {
  settings_ = {"--set", "model.freeze=[" + std::string(kFirstLayer) + "]"};
  configure_async();
  configure_endless();
  auto tasks = start_all(run_dir());
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_step(run_dir()) > 0; }));
  ASSERT_TRUE(tasks[1]->kill());
  tasks.erase(tasks.begin() + 1);
  expect_codes(tasks, 73);
  const uint64_t resumed = newest_step(run_dir());
  is_configured_ = true;
  mode_ = {"--set", "cluster.replicas=async", "--set", "cluster.max_staleness=8"};
  tasks = start_all(run_dir());
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_step(run_dir()) > resumed; }));
  tasks[2]->signal(SIGTERM);
  expect_codes(tasks, 0);
}

TEST_F(ClusterRunTest, RejectsWhatDoesNotWork) {
  auto with_average = start(run_dir(), "ps", 0, {"--set", "train.ema_decay=0.9"});
  EXPECT_EQ(code_of(*with_average), 78);
  EXPECT_THAT(text_of(log_path("ps", 0)), HasSubstr("train.ema_decay: must be null"));
  Process checked(
      joined({program("stokerd")},
             arguments(run_dir(), {"--set", "cluster.ps=[a:1]", "--set", "cluster.worker=[b:1]",
                                   "--set", "train.ema_decay=0.9", "--check-config"})),
      path("checked.out"));
  EXPECT_EQ(code_of(checked), 78);
  EXPECT_THAT(text_of(checked.log()), HasSubstr("with parameter servers: train.ema_decay: must be "
                                                "null (servers have no averages so far)"));
  auto outside = start(run_dir(), "worker", 7);
  EXPECT_EQ(code_of(*outside), 64);
  EXPECT_THAT(text_of(log_path("worker", 7)), HasSubstr("--task_index: must be from 0 to 1"));
  Process wrong(joined({"/usr/bin/env", "TF_CONFIG={'cluster': {}}", program("stokerd")},
                       arguments(run_dir())),
                path("wrong.out"));
  EXPECT_EQ(code_of(wrong), 64) << "it would have trained alone";
  EXPECT_THAT(text_of(path("wrong.out")), HasSubstr("TF_CONFIG: must be a JSON object"));
}

// Platforms set it for runs of one process.
TEST_F(ClusterRunTest, TrainsAloneWithTfConfigOfOtherKind) {
  Process process(
      joined({"/usr/bin/env", R"(TF_CONFIG={"cluster":{"chief":["c:1"]}})", program("stokerd")},
             arguments(run_dir())),
      path("alone.out"));
  EXPECT_EQ(code_of(process), 0) << text_of(process.log());
  EXPECT_EQ(newest_step(run_dir()), max_steps_);
}

TEST_F(ClusterRunTest, RejectsOtherSettingsThanThoseOfServer) {
  num_servers_ = 1;
  auto server = start(run_dir(), "ps", 0);
  auto worker = start(run_dir(), "worker", 0, {"--set", "optimizer.lr=0.5"});
  EXPECT_EQ(code_of(*worker), 78);
  EXPECT_THAT(text_of(log_path("worker", 0)), HasSubstr("optimizer.lr: is '0.5' here"));
}

}  // namespace
}  // namespace stoker::test
