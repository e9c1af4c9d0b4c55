// What the feeder's tests share: a synthetic data set, its ring, and what the plan says each batch
// holds.
#pragma once

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/feeder/feed_supervisor.h"
#include "shared/dataset/dataset.h"

namespace stoker::feeder {

using namespace std::chrono_literals;
inline constexpr auto kLong = 30s;
inline constexpr uint64_t kBatch = 16;

inline config::DatasetConfig synthetic_config() {
  config::DatasetConfig config;
  config.kind = config::DatasetKind::kSynthetic;
  config.samples = 500;
  config.features = {3, 10};
  config.classes = 4;
  return config;
}

class FeederTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "stoker-feeder-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    settings_.feed.readers = 2;
    settings_.index_dir = path("index");
    settings_.config_path = path("config.yaml");
    settings_.bad_sample_path = path("bad_samples.jsonl");
    ASSERT_TRUE(std::filesystem::create_directory(settings_.index_dir));
    auto data = dataset::open_dataset("train", synthetic_config(), settings_.index_dir, {});
    ASSERT_TRUE(data.ok()) << data.status().to_string();
    data_ = *std::move(data);
    plan_.emplace(
        dataset::PlanSettings{.size = data_->size(), .batch = kBatch, .seed = 9, .shuffle = true});
  }
  void TearDown() override {
    if (supervisor_) supervisor_->stop();
    coordinator_.request_stop();
    coordinator_.join(kLong).ok();
    supervisor_.reset();
    std::filesystem::remove_all(directory_);
  }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }

  void open_ring(const ring::RingSettings& settings) {
    auto ring = ring::ShmRing::create(ring::BatchLayout(data_->spec(), kBatch), settings);
    ASSERT_TRUE(ring.ok()) << ring.status().to_string();
    ring_ = *std::move(ring);
  }
  Status start() {
    supervisor_ = std::make_unique<FeedSupervisor>(settings_, *ring_, *data_, *plan_, coordinator_);
    return supervisor_->start();
  }
  // What an undisturbed run gives, from the plan and the data set alone.
  std::vector<std::byte> expected_batch(uint64_t ticket) const {
    const auto& layout = ring_->layout();
    std::vector<std::byte> slot(layout.slot_bytes());
    for (uint64_t row = 0; row < kBatch; ++row) {
      const auto planned = plan_->at(ticket, row);
      const std::vector<std::span<std::byte>> outputs{layout.row(slot, 0, row),
                                                      layout.row(slot, 1, row)};
      EXPECT_TRUE(data_
                      ->read(planned.sample,
                             {.seed = 9, .epoch = planned.epoch, .sample = planned.sample}, outputs)
                      .ok());
    }
    return slot;
  }
  void expect_next(uint64_t ticket) {
    const auto batch = ring_->pop(kLong);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    ASSERT_EQ(batch->ticket, ticket);
    const auto expected = expected_batch(ticket);
    for (const size_t tensor : {0, 1}) {
      const auto got = ring_->layout().whole(batch->slot, tensor);
      const auto want = ring_->layout().whole(expected, tensor);
      ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end()))
          << "ticket " << ticket;
    }
    ring_->release(ticket);
  }
  template <typename Condition>
  static bool eventually(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (!condition() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return condition();
  }

  std::string directory_;
  FeedSettings settings_;
  std::unique_ptr<dataset::Dataset> data_;
  std::optional<dataset::SamplePlan> plan_;
  std::unique_ptr<ring::ShmRing> ring_;
  std::unique_ptr<FeedSupervisor> supervisor_;
  Coordinator coordinator_;
};

}  // namespace stoker::feeder
