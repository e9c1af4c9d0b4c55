// FakeDataset: samples that are numbers, some of them bad, some of them slow, as the test says.
#pragma once

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "shared/dataset/dataset.h"

namespace stoker::feed {

class FakeDataset : public dataset::Dataset {
 public:
  explicit FakeDataset(uint64_t size) : size_(size) {}

  // Before the threads start.
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

  uint64_t size() const override { return size_; }
  const std::vector<TensorSpec>& spec() const override { return spec_; }
  uint64_t classes() const override { return 10; }
  const std::string& fingerprint() const override { return fingerprint_; }
  dataset::Origin origin(uint64_t sample) const override {
    return {.file = "fake.bin", .offset = sample * 8};
  }

  Status read(uint64_t sample, const dataset::DrawKey& draw,
              std::span<const std::span<std::byte>> outputs) const override {
    if (sample == gated_) {
      std::unique_lock lock(mutex_);
      reached_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
    if (bad_.contains(sample))
      return Status(Code::kCorrupt, "fake.bin: sample " + std::to_string(sample) + " is bad");
    const int64_t values[3] = {static_cast<int64_t>(sample), static_cast<int64_t>(draw.epoch),
                               static_cast<int64_t>(draw.seed)};
    std::memcpy(outputs[0].data(), values, sizeof(values));
    const auto label = static_cast<int64_t>(sample % 10);
    std::memcpy(outputs[1].data(), &label, sizeof(label));
    return {};
  }

 private:
  const uint64_t size_;
  const std::vector<TensorSpec> spec_{{.name = "input", .dtype = DType::kI64, .shape = {3}},
                                      {.name = "label", .dtype = DType::kI64, .shape = {}}};
  const std::string fingerprint_ = "fake";
  std::set<uint64_t> bad_;
  uint64_t gated_ = ~0ull;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool open_ = false;
  mutable bool reached_ = false;
};

}  // namespace stoker::feed
