// DeviceStreams: the streams of a device, for copies, for work, and for the start of sums over the ranks
// of a group that run concurrently with work; the events that order them, and the device's memory. It has
// the semantics of CUDA: a stream runs in order and later than the calls, and nothing orders the streams
// with each other or with the host but events. StreamQueue decides which event waits for what.
//
// The CUDA module implements it for CUDA. tests/support/fake_device implements it without a device.
//
// What reads or writes device memory is a function. The CUDA implementation calls it immediately,
// and LibTorch submits its kernels to the work stream; other implementations call it later, in
// another thread, with the caller's grad mode and autocast mode. Therefore it must not use data of
// the host that changes after submit(), and the host gets values from device memory only by
// copy_to_host().
//
// Threads: one, but for record() by captured work, see DeviceQueue.
// Errors:  LibTorch's exceptions (c10::Error), including those caused by work that an earlier call
//          submitted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace stoker::cuda {

using Work = std::function<void()>;

// Time and memory used by a device, as far as known without waiting for it.
struct DeviceUsage {
  uint64_t works = 0;            // work items whose time is known
  double work_ms = 0;            // total of these items
  uint64_t allocated_bytes = 0;  // allocated to tensors; 0 on the CPU
  uint64_t reserved_bytes = 0;   // reserved by LibTorch's allocator
  uint64_t peak_bytes = 0;       // maximum of allocated_bytes
};

// Captured work that can be replayed on the same memory. Must not be destroyed before its replays
// are complete.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void replay() = 0;
};

class DeviceStreams {
 public:
  enum class Stream { kWork, kCopy, kSums };
  using Event = size_t;
  // What an event is for, in addition to order: the time between two, or a position within graphs.
  enum class EventUse { kOrder, kTime, kGraph };

  // Call synchronize() first.
  virtual ~DeviceStreams() = default;

  // Memory for the lifetime of this object: on the device, and page-locked on the host.
  virtual void* allocate(size_t bytes) = 0;
  virtual std::span<double> allocate_host(size_t count) = 0;

  // `name` says what the event is for.
  virtual Event make_event(std::string name, EventUse use = EventUse::kOrder) = 0;
  // Within capture(), only an event for graphs, on the work stream: each replay then records it, when it has
  // got there.
  virtual void record(Event event, Stream stream) = 0;
  // The stream's later work starts after the work that the last record() of the event follows. No
  // effect on an event that was never recorded.
  virtual void wait(Stream stream, Event event) = 0;
  // Whether that work is complete; true for an event that was never recorded.
  virtual bool is_complete(Event event) = 0;
  virtual void synchronize(Event event) = 0;  // waits until it is
  virtual double elapsed_ms(Event begin, Event end) = 0;

  // On the copy stream. `from` must not change until the copy is complete; the call waits for the copy
  // if `from` is not page-locked.
  virtual void copy_to_device(void* to, std::span<const std::byte> from) = 0;
  // On the work stream, to memory of allocate_host().
  virtual void copy_to_host(double* to, const double* from, size_t count) = 0;

  // Calls `work`, which uses LibTorch, on the work stream.
  virtual void submit(Work work) = 0;
  // Same, but returns after the call: for work that also uses data of the host.
  virtual void call(const Work& work) = 0;
  // Calls `work`, which starts sums over the ranks, on the stream for them.
  virtual void submit_sums(Work work) = 0;
  // Records the device work of `work` without running it. Exceptions of `work`, and of operations
  // that cannot be captured, pass through and leave the streams unchanged; drop the graphs that exist
  // then, since those that sample random numbers cannot be replayed any more. Waits for the device.
  // The memory of a graph is reserved until it is destroyed; only the graphs of the same object can
  // use it.
  virtual std::unique_ptr<Graph> capture(const Work& work) = 0;

  virtual void synchronize() = 0;  // waits for all streams
  // Waits for the device and returns reserved memory that is not allocated to it.
  virtual void release_cached_memory() = 0;
  virtual DeviceUsage memory() = 0;  // without the times
  // Device memory that no process has reserved; calls the driver.
  virtual uint64_t free_bytes() = 0;
};

}  // namespace stoker::cuda
