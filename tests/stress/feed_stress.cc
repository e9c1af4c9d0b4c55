// Kills and stops workers at random times for STOKER_STRESS_SECONDS (default 5). Every batch that
// the consumer receives is checked: each sample must be used exactly once per epoch, in the planned
// order. Covers synthetic samples and samples from files, with read-ahead or with the sample cache.
// STOKER_TEST_SEED changes the random choices.
//
// Example: STOKER_STRESS_SECONDS=600 build/release/tests/feed_stress
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/daemon/supervisor/feed_fixture.h"
#include "tests/support/machine_slowness.h"
#include "tests/support/test_seed.h"

namespace stoker::supervisor {
namespace {

double number_from_environment(const char* name, double default_value) {
  const char* text = std::getenv(name);
  return text == nullptr ? default_value : std::atof(text);
}

class FeedStressTest : public FeedTest {
 protected:
  void SetUp() override {
    FeedTest::SetUp();
    clock_ = &system_clock();
    options_.feed_program = FEED_PROGRAM;
    options_.feed.num_workers = 6;
    options_.feed.num_processes = 3;
    options_.feed.worker_timeout_seconds = test::scaled_seconds(0.5);
  }
  void use_computed_samples() {
    auto config = synthetic_config();
    std::get<config::SyntheticDataset>(config.source).input_shape = {3, 64, 64};
    open_data(config);
    write_config("{format: synthetic, num_samples: 500, input_shape: [3, 64, 64], num_classes: 4}");
    open_sample_ring();
  }
  void use_files(const std::string& feed) {
    constexpr size_t kRecord = 3073, kRecords = 500;
    std::mt19937 random(7);
    std::string bytes(kRecords * kRecord, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    for (size_t record = 0; record < kRecords; ++record)
      bytes[record * kRecord] = static_cast<char>(record % 10);
    std::ofstream(path("cifar.bin"), std::ios::binary) << bytes;
    open_data({.source = config::CifarDataset{.path = path("cifar.bin"), .transforms = {}}});
    write_config("{format: cifar10, path: " + path("cifar.bin") + "}", feed);
    open_sample_ring();
  }
  void open_sample_ring() {
    open_ring({.slots = 6});
    for (uint64_t sample = 0; sample < data_->size(); ++sample) samples_[bytes_of(sample)] = sample;
    ASSERT_EQ(samples_.size(), data_->size()) << "samples must be distinguishable by their bytes";
  }
  std::string bytes_of(uint64_t sample) const {
    std::string input(data_->spec()[0].bytes(), '\0');
    std::string label(data_->spec()[1].bytes(), '\0');
    const std::vector<std::span<std::byte>> outputs{std::as_writable_bytes(std::span(input)),
                                                    std::as_writable_bytes(std::span(label))};
    EXPECT_TRUE(data_->read(sample, {}, outputs).ok());
    return input + label;
  }

  // Checks that every row of the batch is complete and the planned sample, and counts its use.
  void check_batch(const ring::ReadyBatch& batch) {
    const auto& layout = ring_->layout();
    for (uint64_t row = 0; row < kBatch; ++row) {
      std::string bytes;
      for (const size_t tensor : {0, 1}) {
        const auto values = layout.tensor_bytes(batch.slot, tensor);
        const size_t length = layout.sample()[tensor].bytes();
        bytes.append(reinterpret_cast<const char*>(values.data()) + row * length, length);
      }
      const auto found = samples_.find(bytes);
      ASSERT_NE(found, samples_.end()) << "ticket " << batch.ticket << " row " << row
                                       << " contains no sample, or an incomplete one";
      const auto planned = plan_->at(batch.ticket, row);
      ASSERT_EQ(found->second, planned.sample) << "ticket " << batch.ticket << " row " << row;
      if (uses_.size() <= planned.epoch)
        uses_.resize(planned.epoch + 1, std::vector<int>(data_->size()));
      ++uses_[planned.epoch][found->second];
    }
  }
  void check_next_batch(uint64_t ticket) {
    const auto batch = ring_->pop(kTestTimeout);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    ASSERT_EQ(batch->ticket, ticket);
    ASSERT_NO_FATAL_FAILURE(check_batch(*batch));
    ring_->release(ticket);
  }
  void inject_fault(std::mt19937& random) {
    const auto ids = supervisor_->process_ids();
    if (ids.empty()) return;
    const pid_t pid = ids[random() % ids.size()];
    switch (random() % 3) {
      case 0:
        ::kill(pid, SIGKILL);
        ++kills_;
        break;
      case 1:
        ::kill(pid, SIGSTOP);  // not continued; must be detected as hung
        ++stops_;
        break;
      default:
        ::kill(pid, SIGSTOP);
        std::this_thread::yield();
        ::kill(pid, SIGCONT);
        ++pauses_;
    }
  }

  void run_with_random_faults() {
    const auto time =
        std::chrono::duration<double>(number_from_environment("STOKER_STRESS_SECONDS", 5));
    std::mt19937 random(static_cast<uint32_t>(test::test_seed()));
    ASSERT_TRUE(start().ok());
    const auto end = std::chrono::steady_clock::now() + time;
    auto next_fault = std::chrono::steady_clock::now();
    uint64_t ticket = 0;
    while (std::chrono::steady_clock::now() < end) {
      ASSERT_NO_FATAL_FAILURE(check_next_batch(ticket++));
      if (std::chrono::steady_clock::now() < next_fault) continue;
      inject_fault(random);
      next_fault = std::chrono::steady_clock::now() + std::chrono::milliseconds(random() % 200);
    }
    // Finish the current epoch, so that all epochs are complete.
    const uint64_t num_epochs = uses_.size();
    while (ticket * kBatch < num_epochs * data_->size())
      ASSERT_NO_FATAL_FAILURE(check_next_batch(ticket++));
    for (uint64_t epoch = 0; epoch < num_epochs; ++epoch)
      for (uint64_t sample = 0; sample < data_->size(); ++sample)
        ASSERT_EQ(uses_[epoch][sample], 1) << "sample " << sample << " of epoch " << epoch;
    EXPECT_FALSE(coordinator_.should_stop()) << coordinator_.reason().to_string();
    EXPECT_GT(kills_ + stops_, 0u);
    std::printf(
        "%lu batches in %lu epochs; %lu workers killed, %lu stopped, %lu paused; %lu crashes, "
        "%lu of them hung; %lu tickets requeued; %lu samples in quarantine\n",
        ticket, num_epochs, kills_, stops_, pauses_, supervisor_->crashes(),
        supervisor_->timeouts(), ring_->counters().requeued, supervisor_->quarantined().size());
  }

  std::map<std::string, uint64_t> samples_;
  std::vector<std::vector<int>> uses_;  // use count of each sample, by epoch
  uint64_t kills_ = 0, stops_ = 0, pauses_ = 0;
};

TEST_F(FeedStressTest, UsesEachSampleOnceWhenWorkersAreKilledAndStopped) {
  use_computed_samples();
  run_with_random_faults();
}

TEST_F(FeedStressTest, UsesEachSampleOnceWithReadAhead) {
  // Too little memory to cache the samples.
  use_files("{read_ahead: 20, read_ahead_mib: 1, worker_memory_limit_mib: 8}");
  run_with_random_faults();
}

TEST_F(FeedStressTest, UsesEachSampleOnceWithSampleCache) {
  use_files("{read_ahead: auto}");
  run_with_random_faults();
}

}  // namespace
}  // namespace stoker::supervisor
