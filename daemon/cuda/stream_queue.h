// StreamQueue: the DeviceQueue of a device with streams. It decides which copy, work and sum waits for
// which event.
//
// Each fence is necessary: tests/daemon/train/device_schedule_test.cc removes one after the other and
// checks that training goes wrong. That of wait_for_sums() is for functions that are called later, and for a
// group that copies at the start of a sum: on CUDA with NCCL, the end of a sum is waited for anyway.
//
// Threads: one.
#pragma once

#include <array>
#include <vector>

#include "daemon/cuda/device_queue.h"

namespace stoker::cuda {

class StreamQueue final : public DeviceQueue {
 public:
  // `slots`: of the ring, with `slot_bytes` each.
  StreamQueue(std::unique_ptr<DeviceStreams> streams, size_t slot_bytes, size_t slots);

  void* input(size_t buffer) override { return inputs_[buffer]; }
  void start_copy(size_t buffer, size_t slot, std::span<const CopyPart> parts) override;
  bool is_copied(size_t slot) override;
  void wait_until_copied(size_t slot) override;
  void begin_work(size_t slot) override;
  void end_work(size_t buffer) override;
  void submit(Work work) override { streams_->submit(std::move(work)); }
  void call(const Work& work) override { streams_->call(work); }
  std::unique_ptr<Graph> capture(const Work& work) override { return streams_->capture(work); }
  void release_cached_memory() override { streams_->release_cached_memory(); }
  void make_graph_events(size_t count) override;
  void record_graph_event(size_t event) override {
    streams_->record(graph_events_[event], Stream::kWork);
  }
  void submit_sum(size_t event, Work work) override;
  void wait_for_sums() override;
  double* read_buffer(size_t read) override { return device_values_ + read * kMaxValues; }
  void start_read(size_t read, size_t count) override;
  bool is_read(size_t read) override { return streams_->is_complete(read_[read]); }
  void wait_until_read(size_t read) override { streams_->synchronize(read_[read]); }
  std::span<const double> values(size_t read) override;
  void wait_for_work(Next next) override;
  void synchronize() override { streams_->synchronize(); }
  DeviceUsage usage() override;
  uint64_t free_bytes() override { return streams_->free_bytes(); }

 private:
  static constexpr size_t kMaxTimedItems = 4;  // maximum number of timed work items in flight
  using Stream = DeviceStreams::Stream;
  using Event = DeviceStreams::Event;

  void add_elapsed_time();

  const std::unique_ptr<DeviceStreams> streams_;
  std::array<void*, kBuffers> inputs_{};
  double* const device_values_;
  const std::span<double> host_values_;
  std::vector<Event> copied_;              // by ring slot
  std::array<Event, kBuffers> work_done_;  // by buffer
  std::array<Event, kReads> read_;         // by read
  std::array<Event, kNextNames.size()> all_done_;
  std::vector<Event> graph_events_;
  Event sums_started_;
  std::array<Event, kMaxTimedItems> started_, finished_;  // by work item, the last ones
  uint64_t num_work_items_ = 0;                           // completed begin_work()/end_work() pairs
  DeviceUsage usage_;                                     // work times only
  std::array<size_t, kReads> counts_{};
};

}  // namespace stoker::cuda
