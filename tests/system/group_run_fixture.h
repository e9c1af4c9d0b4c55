// GroupRunTest: runs that several stokerd processes train together, with the environment variables of
// torchrun.
#pragma once

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "tests/support/reserved_port.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace json = boost::json;

class GroupRunTest : public RunTest {
 protected:
  // With dropout, and several micro-batches per step, of which each rank has a part.
  void configure(uint64_t steps) {
    write_config(small_config("distributed: {reduction: ordered}\n"), "group.yaml");
    max_steps_ = std::to_string(steps);
  }
  std::vector<std::string> arguments(const std::string& run,
                                     const std::vector<std::string>& more = {}) const {
    return joined(
        {"--config", path("group.yaml"), "--run-dir", run, "--set", "train.max_steps=" + max_steps_,
         "--set", "train.gradient_accumulation_steps=" + std::to_string(micro_batches_), "--set",
         "train.micro_batch_size=4", "--set",
         "checkpoint.save_every_steps=" + std::to_string(save_every_), "--set",
         "metrics.log_every_steps=1", "--set", "metrics.tensorboard=false", "--set",
         "control.socket=" + socket_},
        more);
  }
  // Until it is stopped. Another number of steps changes no byte of the steps before.
  void configure_endless() {
    std::string config =
        small_config("distributed: {reduction: ordered}\neval: {poll_interval_seconds: 0.2}\n");
    const size_t begin = config.find("{name: cosine");
    ASSERT_NE(begin, std::string::npos);
    config.replace(begin, config.find('\n', begin) - begin, "{name: constant}");
    write_config(config, "group.yaml");
    max_steps_ = "1000000";
  }
  void end_at(uint64_t step) { max_steps_ = std::to_string(step); }
  void train_alone(const std::string& run, const std::vector<std::string>& more = {}) {
    Process process(joined({program("stokerd")}, arguments(run, more)), path("alone.out"));
    EXPECT_EQ(code_of(process), 0);
  }

  // The environment variables of torchrun, without torchrun.
  Process start_rank(int rank, int world_size, const std::string& run,
                     const std::vector<std::string>& more = {},
                     const std::vector<std::string>& variables = {}) const {
    const auto set = [](const std::string& variable, int value) {
      return variable + "=" + std::to_string(value);
    };
    return Process(
        joined(joined({"/usr/bin/env", "MASTER_ADDR=127.0.0.1", set("MASTER_PORT", port_.number()),
                       set("RANK", rank), set("WORLD_SIZE", world_size), set("LOCAL_RANK", rank),
                       set("LOCAL_WORLD_SIZE", world_size)},
                      variables),
               joined({program("stokerd")}, arguments(run, more))),
        log_path(rank));
  }
  std::vector<std::unique_ptr<Process>> start_group(
      int world_size, const std::string& run, const std::vector<std::string>& more = {},
      const std::vector<std::string>& variables = {}) const {
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < world_size; ++rank)
      ranks.push_back(
          std::make_unique<Process>(start_rank(rank, world_size, run, more, variables)));
    return ranks;
  }
  void expect_success(const std::vector<std::unique_ptr<Process>>& ranks) const {
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      EXPECT_EQ(code_of(*ranks[rank]), 0) << "rank " << rank;
  }
  // All threads: they notice SIGSTOP one after the other.
  static bool is_stopped(pid_t pid) {
    for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
      const std::string stat = text_if_exists(thread.path() / "stat");
      const size_t name_end = stat.rfind(')');
      if (name_end == std::string::npos || stat.substr(name_end, 3) != ") T") return false;
    }
    return true;
  }
  std::string log_path(int rank) const { return path("rank-" + std::to_string(rank) + ".out"); }
  std::string output_of(int rank) const { return text_of(log_path(rank)); }
  int count_in_log(int rank, const std::string& text) const {
    return static_cast<int>(count_of(output_of(rank), text));
  }

  // Parameters, optimizer, generator, sums: the whole state. And the records.
  static void expect_same_run(const std::string& run, const std::string& other) {
    expect_same_checkpoint(
        run, other, {"model.safetensors", "optimizer.safetensors", "trainer_state.safetensors"});
    EXPECT_EQ(deterministic_records(run), deterministic_records(other)) << run;
  }

  // Of a rank, in whose directory it is.
  static std::string flight_record(const std::string& directory) {
    return directory + "/logs/flight_recorder.jsonl";
  }
  static json::object last_collective(const std::string& directory) {
    const std::string text = text_of(flight_record(directory));
    const size_t end = text.rfind('\n');
    if (end == std::string::npos || end == 0) return {};
    const size_t begin = text.rfind('\n', end - 1) + 1;
    return json::parse(text.substr(begin, end - begin)).as_object();
  }

  // All tensors of the newest checkpoint, in one file whatever number of files it has.
  std::string export_of(const std::string& run, const std::string& what) {
    const std::string output = path("export-" + std::to_string(++exports_) + ".safetensors");
    Process exporting =
        ctl(run, {"export", "latest", "--include", what, "--output", output}, "export");
    EXPECT_EQ(code_of(exporting), 0) << log_of("export");
    return text_of(output);
  }
  void expect_same_state(const std::string& run, const std::string& other) {
    expect_same_checkpoint(run, other, {"model.safetensors", "trainer_state.safetensors"});
    EXPECT_TRUE(export_of(run, "optimizer") == export_of(other, "optimizer")) << run;
    EXPECT_EQ(deterministic_records(run), deterministic_records(other)) << run;
  }
  // By `stokerctl show-batch`.
  std::string batch_of(const std::string& run, uint64_t step) const {
    fs::remove(path("show-batch.out"));  // Process appends to the file
    Process client = ctl(run, {"show-batch", std::to_string(step)}, "show-batch");
    EXPECT_EQ(code_of(client), 0) << log_of("show-batch");
    return log_of("show-batch");
  }
  static std::vector<std::string> unfinished(const std::string& run) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run + "/checkpoints"))
      if (const std::string name = entry.path().filename(); name.starts_with(".tmp-step-"))
        names.push_back(name);
    return names;
  }

  // Stops the process of the chief while it commits a checkpoint, of which this returns the unfinished directory.
  static std::string stop_in_commit(const Process& chief, const std::string& run) {
    std::vector<std::string> names;
    EXPECT_TRUE(wait_until(kPatience, [&] {
      chief.signal(SIGSTOP);
      EXPECT_TRUE(wait_until(kPatience, [&] { return is_stopped(chief.pid()); }));
      names = unfinished(run);
      if (!names.empty()) return true;
      chief.signal(SIGCONT);
      return false;
    }));
    return names.empty() ? "" : names.front();
  }
  void expect_valid_checkpoints(const std::string& run) {
    Process verify = ctl(run, {"verify", "--all"}, "verify");
    EXPECT_EQ(code_of(verify), 0) << log_of("verify");
  }

  static constexpr const char* kAlone = "alone";
  const std::vector<std::string> kSharded{"--set", "distributed.shard=optimizer"};
  const std::vector<std::string> kKubernetes{"KUBERNETES_SERVICE_HOST=192.0.2.1"};  // variables
  int exports_ = 0;
  const ReservedPort port_;
  int micro_batches_ = 4;  // per step
  int save_every_ = 8;     // steps
  std::string max_steps_;
  std::string socket_ = "null";
};

}  // namespace stoker::test
