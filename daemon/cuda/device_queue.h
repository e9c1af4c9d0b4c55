// DeviceQueue: runs the device side of training steps: asynchronous copies of batches, the work of
// the steps, captured graphs, and delayed reads of values.
//
// StreamQueue implements it with the streams of a device; tests also use an implementation that
// completes everything immediately. The interface uses bytes and functions, not tensors. The rules
// of DeviceStreams for functions apply.
//
// Threads:   one, but for record_graph_event(), which captured work calls on the thread that runs it: that of
//            LibTorch for backward passes, for which the caller of capture() waits.
// Blocking:  wait_…(), call(), capture(), release_cached_memory() and synchronize(), nothing else.
// Ownership: owns the input buffers and the memory for read values.
// Errors:    LibTorch's exceptions (c10::Error), including those caused by work that an earlier
//            call started.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "daemon/cuda/device_streams.h"

namespace stoker::cuda {

// Host bytes and their position in a buffer.
struct CopyPart {
  size_t offset = 0;
  std::span<const std::byte> bytes;
};

class DeviceQueue {
 public:
  static constexpr size_t kBuffers = 2;
  static constexpr size_t kReads = 4;       // maximum reads in flight
  static constexpr size_t kMaxValues = 72;  // per read; training metrics have 64

  virtual ~DeviceQueue() = default;

  // Device memory for one batch; its address never changes.
  virtual void* input(size_t buffer) = 0;

  // Copies the parts of the batch in ring slot `slot` into a buffer after the previous work on that
  // buffer is done. Their bytes must not be reused until then.
  virtual void start_copy(size_t buffer, size_t slot, std::span<const CopyPart> parts) = 0;
  virtual bool is_copied(size_t slot) = 0;
  virtual void wait_until_copied(size_t slot) = 0;

  // Enclose the work on a buffer, which starts when the copy from `slot` is complete.
  virtual void begin_work(size_t slot) = 0;
  virtual void end_work(size_t buffer) = 0;

  // See DeviceStreams.
  virtual void submit(Work work) = 0;
  virtual void call(const Work& work) = 0;
  virtual std::unique_ptr<Graph> capture(const Work& work) = 0;
  virtual void release_cached_memory() = 0;

  // Sums over the ranks that start while a graph is replayed, each when the replay has recorded its event.
  virtual void make_graph_events(size_t count) = 0;
  // By captured work, which records all events.
  virtual void record_graph_event(size_t event) = 0;
  // Calls `work`, which starts a sum, when the last replay has recorded the event. It may change data of the
  // host that nothing else uses until a call() after wait_for_sums().
  virtual void submit_sum(size_t event, Work work) = 0;
  // The work submitted from now on starts after these calls.
  virtual void wait_for_sums() = 0;

  // Device memory for the values of a read, written by submitted work.
  virtual double* read_buffer(size_t read) = 0;
  // Copies `count` of them to the host after the work submitted so far.
  virtual void start_read(size_t read, size_t count) = 0;
  virtual bool is_read(size_t read) = 0;
  virtual void wait_until_read(size_t read) = 0;
  virtual std::span<const double> values(size_t read) = 0;

  // What the host does when the work submitted so far is complete.
  enum class Next { kUseState, kDropGraphs };
  static constexpr std::array<std::string_view, 2> kNextNames{"use of the state", "drop of graphs"};
  virtual void wait_for_work(Next next) = 0;
  virtual void synchronize() = 0;  // waits for copies, work and the start of sums

  virtual DeviceUsage usage() = 0;
  virtual uint64_t free_bytes() = 0;
};

}  // namespace stoker::cuda
