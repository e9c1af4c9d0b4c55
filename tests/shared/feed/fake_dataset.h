// FakeDataset: a dataset of integers with configurable sample errors, slow samples and read
// latency.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/data/dataset.h"
#include "shared/data/files/prefetched_bytes.h"

namespace stoker::feed {

class FakeDataset : public data::Dataset, public data::SampleFiles {
 public:
  explicit FakeDataset(uint64_t size)
      : info_{.size = size,
              .fingerprint = "fake",
              .spec = {{.name = "input", .dtype = DType::kI64, .shape = {3}},
                       {.name = "label", .dtype = DType::kI64, .shape = {}}},
              .classes = 10,
              .maybe_files = this} {}

  // Must be called before the threads start.
  void make_bad(std::set<uint64_t> samples) { bad_ = std::move(samples); }
  // read() of this sample waits until open_gate().
  void gate(uint64_t sample) { gated_ = sample; }
  void wait_until_gated() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }
  void open_gate() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

  // prefetch() blocks until this many calls are waiting and returns immediately afterwards.
  void answer_together(int reads) { together_ = reads; }
  // Each prefetch() takes at least this long and blocks its thread.
  void answer_after(std::chrono::microseconds time) {
    const std::lock_guard lock(mutex_);
    answers_after_ = time;
  }
  // The maximum number of samples that were read together.
  size_t max_together() const {
    const std::lock_guard lock(mutex_);
    return max_together_;
  }
  // Each read takes at least this long.
  void read_for(std::chrono::microseconds time) { read_for_ = time; }
  int max_reads_in_flight() const {
    const std::lock_guard lock(mutex_);
    return max_in_flight_;
  }
  uint64_t prefetched() const {
    const std::lock_guard lock(mutex_);
    return prefetched_;
  }
  uint64_t taken_from_memory() const {
    const std::lock_guard lock(mutex_);
    return taken_;
  }

  const data::DatasetInfo& info() const override { return info_; }
  data::SampleSource source(uint64_t sample) const override {
    return {.file = "fake.bin", .offset = sample * 8};
  }

  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    if (sample == gated_) {
      std::unique_lock lock(mutex_);
      reached_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
    take_prefetched(sample);
    const auto end = std::chrono::steady_clock::now() + read_for_;
    while (std::chrono::steady_clock::now() < end) continue;
    if (bad_.contains(sample))
      return Status(StatusCode::kCorrupt, "fake.bin: sample " + std::to_string(sample) + " is bad");
    const int64_t values[3] = {static_cast<int64_t>(sample), static_cast<int64_t>(random_key.epoch),
                               static_cast<int64_t>(random_key.seed)};
    std::memcpy(outputs[0].data(), values, sizeof(values));
    const auto label = static_cast<int64_t>(sample % 10);
    std::memcpy(outputs[1].data(), &label, sizeof(label));
    return {};
  }

  data::BatchReadResult read_batch(std::span<const data::SampleReadRequest> samples,
                                   std::span<const std::span<std::byte>> rows) const override {
    {
      const std::lock_guard lock(mutex_);
      max_together_ = std::max(max_together_, samples.size());
    }
    return Dataset::read_batch(samples, rows);
  }

  void prefetch(uint64_t sample, data::files::PrefetchedBytes& bytes) const override {
    bytes.fetch(range_of(sample), [&](std::span<std::byte> out) {
      wait_for_disk();
      std::ranges::fill(out, std::byte(sample));
      return Status();
    });
  }

 private:
  static constexpr uint64_t kBytes = 10;
  static data::files::ByteRange range_of(uint64_t sample) {
    return {.reader = nullptr, .file = 0, .offset = sample * kBytes, .count = kBytes};
  }

  void wait_for_disk() const {
    std::unique_lock lock(mutex_);
    ++prefetched_;
    ++in_flight_;
    max_in_flight_ = std::max(max_in_flight_, in_flight_);
    changed_.notify_all();
    changed_.wait(lock, [this] { return max_in_flight_ >= together_; });
    const auto answer = std::chrono::steady_clock::now() + answers_after_;
    if (answers_after_.count() > 0)
      changed_.wait_until(lock, answer, [&] { return std::chrono::steady_clock::now() >= answer; });
    --in_flight_;
  }

  // Prefetched bytes must belong to this sample.
  void take_prefetched(uint64_t sample) const {
    auto* const held = data::files::PrefetchedBytes::current();
    if (held == nullptr) return;
    std::vector<std::byte> bytes(kBytes);
    const auto status = held->try_take(range_of(sample), std::span(bytes));
    if (!status) return;
    EXPECT_EQ(bytes, std::vector<std::byte>(kBytes, std::byte(sample)));
    const std::lock_guard lock(mutex_);
    ++taken_;
  }

  const data::DatasetInfo info_;
  std::set<uint64_t> bad_;
  uint64_t gated_ = ~0ull;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool open_ = false;
  mutable bool reached_ = false;
  int together_ = 0;
  std::chrono::microseconds answers_after_{0};
  mutable int in_flight_ = 0, max_in_flight_ = 0;
  mutable uint64_t prefetched_ = 0, taken_ = 0;
  mutable size_t max_together_ = 0;
  std::chrono::microseconds read_for_{0};
};

}  // namespace stoker::feed
