// DatasetRefreshFixture: a run over a dataset that is appended to. The run is paused while a test
// appends data, and its last step follows the pause, so that results do not depend on timing.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "shared/feed/dataset_versions.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {

using namespace std::chrono_literals;

inline constexpr uint64_t kBatch = 4;

class DatasetRefreshFixture : public RunTest {
 protected:
  // `train_set`: data.train in YAML.
  std::string config_with(const std::string& train_set) const {
    return write_config("data:\n  train: " + train_set + R"(
feed: {refresh_interval_seconds: 0.05}
model: {name: mlp, hidden_sizes: [16], dropout: 0.1}
task: {name: classification}
optimizer: {name: adamw, lr: 0.003}
scheduler: {name: constant, warmup_steps: 10}
checkpoint: {save_every_steps: 50, keep_last: 1000}
metrics: {log_every_steps: 23}  # fewer records than the queue holds, so that none is dropped on a slow disk
)" +
                        "train: {max_steps: 1000000000, micro_batch_size: 4, device: cpu, "
                        "num_threads: 1}\n");
  }

  void send_command(const std::string& word, const std::vector<std::string>& more = {}) const {
    const auto exit = ctl(run_dir(), joined({word}, more), "ctl").wait(60s);
    ASSERT_TRUE(exit && exit->code == 0) << log_of("ctl");
  }
  bool log_contains(const std::string& text) const {
    return log_of("stokerd").find(text) != std::string::npos;
  }
  // Starts a run and pauses it with a checkpoint, from which it will take 500 steps.
  Process paused_trainer(const std::string& config) {
    Process trainer = this->trainer(config, run_dir());
    EXPECT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > 0; }));
    send_command("pause");
    send_command("checkpoint");
    last_step_ = newest_step(run_dir()) + 500;
    send_command("set", {"train.max_steps", std::to_string(last_step_)});
    return trainer;
  }
  std::vector<std::string> to_last_step() const {
    return {"--set", "train.max_steps=" + std::to_string(last_step_)};
  }
  feed::DatasetVersions history(const std::string& run) const {
    const auto read = feed::read_dataset_versions(run + "/dataset_versions.jsonl");
    EXPECT_TRUE(read.ok()) << read.status().to_string();
    return read.ok() ? *read : feed::DatasetVersions();
  }

  boost::json::object explained(uint64_t step) const {
    std::filesystem::remove(path("show-batch.out"));  // Process appends to the file
    const auto exit =
        ctl(run_dir(), {"--json", "show-batch", std::to_string(step)}, "show-batch").wait(30s);
    EXPECT_TRUE(exit && exit->code == 0) << log_of("show-batch");
    return boost::json::parse(log_of("show-batch")).as_object();
  }
  uint64_t size_at(uint64_t step) const {
    return explained(step).at("num_samples").to_number<uint64_t>();
  }
  uint64_t epoch_at(uint64_t step) const {
    return explained(step).at("samples").as_array()[0].at("epoch").to_number<uint64_t>();
  }
  // Checks that the steps after `first` that cover one epoch of `samples` use each sample once.
  void expect_complete_epoch(uint64_t first, uint64_t samples) const {
    std::set<uint64_t> seen;
    for (uint64_t step = first + 1; step <= first + samples / kBatch; ++step) {
      const boost::json::object answer = explained(step);
      for (const auto& sample : answer.at("samples").as_array())
        EXPECT_TRUE(seen.insert(sample.at("sample").to_number<uint64_t>()).second) << step;
    }
    EXPECT_EQ(seen.size(), samples);
  }

  uint64_t last_step_ = 0;  // of paused_trainer()
};

}  // namespace stoker::test
