// Fixture of the feed tests: a dataset, its ring, the matching configuration for stoker-feed, and
// the batches expected from the plan.
#pragma once

#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/supervisor/feed_supervisor.h"
#include "shared/base/file.h"
#include "shared/data/dataset.h"
#include "shared/data/order/sample_plan.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

namespace stoker::supervisor {

using namespace std::chrono_literals;
inline const auto kTestTimeout = test::scaled(60s);  // reached only if the test fails
inline constexpr uint64_t kBatch = 16;

inline config::DatasetConfig synthetic_config() {
  return {.source = config::SyntheticDataset{
              .num_samples = 500, .input_shape = {3, 10}, .num_classes = 4}};
}

inline data::order::SamplePlan plan_for(const data::Dataset& data) {
  return data::order::SamplePlan({.size = data.size(), .batch = kBatch, .seed = 9});
}

using test::eventually;

// Samples that crash the test worker in some modes: a sample and its replacement sample.
inline std::set<uint64_t> crashing_samples(const data::order::SamplePlan& plan) {
  return {plan.at(3, 5).sample, plan.replacement(3, 5, 1).sample};
}

// A clock that runs a hundred times as fast, so that no test waits for the restart delay.
class FastClock : public Clock {
 public:
  std::chrono::nanoseconds monotonic() const override { return system_clock().monotonic() * 100; }
  std::chrono::system_clock::time_point wall() const override { return system_clock().wall(); }
};

class FeedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.feed.num_workers = 2;
    // Time runs too fast here; tests of timeouts use their own clock.
    options_.feed.worker_timeout_seconds.reset();
    options_.feed.max_restarts_per_minute = 1'000'000;
    options_.index_dir = path("index");
    options_.config_path = path("config.yaml");
    options_.sample_error_path = path("sample_errors.jsonl");
    ASSERT_TRUE(std::filesystem::create_directory(options_.index_dir));
    open_data(synthetic_config());
  }
  void TearDown() override {
    if (supervisor_) supervisor_->stop();
    coordinator_.request_stop();
    coordinator_.join(kTestTimeout).ok();
    supervisor_.reset();
  }

  std::string path(const std::string& name) const { return directory_ / name; }

  void open_data(const config::DatasetConfig& config) {
    auto data = data::pipeline::open_dataset("train", config, options_.index_dir, {});
    ASSERT_TRUE(data.ok()) << data.status().to_string();
    data_ = *std::move(data);
    plan_.emplace(plan_for(*data_));
  }
  // `train_set`: data.train as YAML.
  void write_config(const std::string& train_set, const std::string& feed = "") const {
    std::ofstream(options_.config_path)
        << "run: {seed: 9}\ndata:\n  train: " << train_set
        << "\nmodel: {name: mlp, hidden_sizes: [8]}\ntask: {name: classification}\n"
        << "train: {micro_batch_size: " << kBatch << "}\n"
        << (feed.empty() ? "" : "feed: " + feed + "\n");
  }
  void open_ring(const ring::RingOptions& options) {
    auto ring = ring::ShmRing::create(ring::BatchLayout(data_->spec(), kBatch), options);
    ASSERT_TRUE(ring.ok()) << ring.status().to_string();
    ring_ = *std::move(ring);
  }
  Status start() {
    supervisor_ = std::make_unique<FeedSupervisor>(options_, *ring_, data_.get(), *plan_,
                                                   coordinator_, *clock_);
    return supervisor_->start();
  }
  // The batch of an undisturbed run, from the plan and the dataset alone, with replacement samples
  // for `unreadable_`.
  std::vector<std::byte> expected_batch(uint64_t ticket) const {
    const auto& layout = ring_->layout();
    std::vector<std::byte> slot(layout.slot_bytes());
    for (uint64_t row = 0; row < kBatch; ++row) {
      auto planned = plan_->at(ticket, row);
      for (uint64_t attempt = 1; unreadable_.contains(planned.sample); ++attempt)
        planned = plan_->replacement(ticket, row, attempt);
      std::vector<std::span<std::byte>> outputs;
      for (size_t tensor = 0; tensor < layout.sample().size(); ++tensor)
        outputs.push_back(layout.row(slot, tensor, row));
      EXPECT_TRUE(data_->read(planned.sample, plan_->random_key(planned), outputs).ok());
    }
    return slot;
  }
  void expect_next(uint64_t ticket) {
    const auto batch = ring_->pop(kTestTimeout);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    ASSERT_EQ(batch->ticket, ticket);
    const auto expected = expected_batch(ticket);
    for (size_t tensor = 0; tensor < ring_->layout().sample().size(); ++tensor) {
      const auto got = ring_->layout().tensor_bytes(batch->slot, tensor);
      const auto expected_bytes = ring_->layout().tensor_bytes(expected, tensor);
      ASSERT_TRUE(std::equal(got.begin(), got.end(), expected_bytes.begin(), expected_bytes.end()))
          << "ticket " << ticket;
    }
    ring_->release(ticket);
  }
  std::string list_of_sample_errors() const {
    const auto text = read_file(options_.sample_error_path, 1 << 20);
    return text.ok() ? *text : "";
  }
  static bool no_children_left() {
    return ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD;
  }

  const test::TemporaryDirectory directory_;
  FeedOptions options_;
  std::unique_ptr<data::Dataset> data_;
  std::optional<data::order::SamplePlan> plan_;
  std::unique_ptr<ring::ShmRing> ring_;
  std::unique_ptr<FeedSupervisor> supervisor_;
  Coordinator coordinator_;
  FastClock fast_clock_;
  Clock* clock_ = &fast_clock_;
  std::set<uint64_t> unreadable_;
};

}  // namespace stoker::supervisor
