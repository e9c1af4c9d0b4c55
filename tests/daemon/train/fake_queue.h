// FakeQueue: a DeviceQueue in host memory. A test controls when copies complete, and replaying a
// graph calls the captured work again.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/cuda/device_queue.h"

namespace stoker::train {

class FakeQueue final : public cuda::DeviceQueue {
 public:
  static constexpr double kWorkMs = 2.5;  // per work item

  // Shared with the test, which can also use it after the queue is destroyed.
  struct Log {
    bool copies_are_slow = false;  // complete only when waited for
    bool reads_are_slow = false;
    int copies = 0, waits = 0, captures = 0, replays = 0;
    std::vector<size_t> buffers;  // targets of the copies, in order
    std::set<size_t> finished;    // slots whose copies the test marked as complete
    cuda::DeviceUsage use;        // usage that the device reports
    uint64_t graph_bytes = 0;     // that each capture reserves
    uint64_t free_bytes = 0;
    int releases = 0;  // of cached memory
  };

  FakeQueue(std::shared_ptr<Log> log, size_t slot_bytes) : log_(std::move(log)) {
    for (auto& input : inputs_) input.resize(slot_bytes);
  }

  void* input(size_t buffer) override { return inputs_[buffer].data(); }

  void start_copy(size_t buffer, size_t slot, std::span<const cuda::CopyPart> parts) override {
    EXPECT_NE(maybe_working_on_, static_cast<int>(buffer)) << "the buffer is still read";
    ++log_->copies;
    log_->buffers.push_back(buffer);
    log_->finished.erase(slot);
    copies_[slot] = {buffer, {parts.begin(), parts.end()}};
  }
  bool is_copied(size_t slot) override {
    return !log_->copies_are_slow || log_->finished.contains(slot);
  }
  void wait_until_copied(size_t slot) override {
    log_->waits += is_copied(slot) ? 0 : 1;
    log_->finished.insert(slot);
  }
  void begin_work(size_t slot) override {
    const auto& [buffer, parts] = copies_.at(slot);
    for (const cuda::CopyPart& part : parts)
      std::ranges::copy(part.bytes,
                        inputs_[buffer].begin() + static_cast<std::ptrdiff_t>(part.offset));
    maybe_working_on_ = static_cast<int>(buffer);
  }
  void end_work(size_t buffer) override {
    EXPECT_EQ(maybe_working_on_, static_cast<int>(buffer));
    maybe_working_on_ = -1;
    ++log_->use.works;
    log_->use.work_ms += kWorkMs;
  }

  void submit(cuda::Work work) override { work(); }
  void call(const cuda::Work& work) override { work(); }
  std::unique_ptr<cuda::Graph> capture(const cuda::Work& work) override {
    ++log_->captures;
    if (before_capture) before_capture();
    log_->use.reserved_bytes += log_->graph_bytes;
    return std::make_unique<Replay>(*log_, work);
  }

  void release_cached_memory() override { ++log_->releases; }

  void make_graph_events(size_t) override {}
  void record_graph_event(size_t) override {}
  void submit_sum(size_t, cuda::Work work) override { work(); }
  void wait_for_sums() override {}

  double* read_buffer(size_t read) override { return read_buffers_[read].data(); }
  void start_read(size_t read, size_t count) override {
    ASSERT_LE(count, kMaxValues);
    reads_[read].assign(read_buffers_[read].begin(), read_buffers_[read].begin() + count);
    unread_.insert(read);
  }
  bool is_read(size_t read) override { return !log_->reads_are_slow || !unread_.contains(read); }
  void wait_until_read(size_t read) override { unread_.erase(read); }
  std::span<const double> values(size_t read) override { return reads_[read]; }

  void wait_for_work(Next) override {}
  void synchronize() override {}

  cuda::DeviceUsage usage() override { return log_->use; }
  uint64_t free_bytes() override { return log_->free_bytes; }

  std::function<void()> before_capture;  // may throw to simulate a device that rejects the capture

 private:
  class Replay final : public cuda::Graph {
   public:
    Replay(Log& log, std::function<void()> work) : log_(log), work_(std::move(work)) {}
    void replay() override {
      ++log_.replays;
      work_();
    }

   private:
    Log& log_;
    const std::function<void()> work_;
  };

  const std::shared_ptr<Log> log_;
  std::array<std::vector<std::byte>, kBuffers> inputs_;
  // By ring slot: the buffer, and what is copied to it.
  std::map<size_t, std::pair<size_t, std::vector<cuda::CopyPart>>> copies_;
  std::array<std::array<double, kMaxValues>, kReads> read_buffers_{};
  std::array<std::vector<double>, kReads> reads_;
  std::set<size_t> unread_;
  int maybe_working_on_ = -1;
};

}  // namespace stoker::train
