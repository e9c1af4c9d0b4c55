// DeviceQueue: what a device does for the steps of training: copies of batches beside the work of
// the steps before, the work itself, graphs of it, and numbers that are read late.
//
// The module implements it for CUDA; tests have one without a device. It knows bytes and functions,
// no tensors.
//
// Two streams: copies run on one, work on the other. Whatever the caller's thread gives to the device
// by LibTorch while the queue lives belongs to the work.
//
// Threads:  one.
// Blocking: wait_…() and synchronize() for the device, nothing else.
// Owner:    the two input buffers, and the memory into which numbers are read.
// Errors:   exceptions of LibTorch (c10::Error), also for what an earlier call had begun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace stoker::cuda {

// What a device has done and holds, as far as it is known without waiting for it.
struct DeviceUsage {
  uint64_t works = 0;            // pieces of work whose time is known
  double work_ms = 0;            // of all of them
  uint64_t allocated_bytes = 0;  // that tensors have; 0: the host's memory is all there is
  uint64_t reserved_bytes = 0;   // that LibTorch has of the device
  uint64_t peak_bytes = 0;       // the most that tensors have had
};

// Work that was captured; it can be done again and again, on the same memory.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void replay() = 0;
};

class DeviceQueue {
 public:
  static constexpr size_t kBuffers = 2;
  static constexpr size_t kReads = 16;     // that are under way at once
  static constexpr size_t kMaxValues = 8;  // of one read

  virtual ~DeviceQueue() = default;

  // Device memory for one batch; its address never changes.
  virtual void* input(size_t buffer) = 0;

  // Copies `bytes`, the memory of ring slot `slot`, into a buffer, once the work that read the
  // buffer before is done.
  virtual void start_copy(size_t buffer, size_t slot, std::span<const std::byte> bytes) = 0;
  virtual bool is_copied(size_t slot) = 0;
  virtual void wait_until_copied(size_t slot) = 0;

  // Around the work on a buffer: it begins when the copy from `slot` is done.
  virtual void begin_work(size_t slot) = 0;
  virtual void end_work(size_t buffer) = 0;

  // Does not do the work, but notes what of it goes to the device. Whatever `work` throws passes
  // through, as does what the device refuses to capture; the queue is then as before.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& work) = 0;

  // Copies numbers to the host, behind the work so far; `values` must stay until that is done.
  virtual void start_read(size_t read, const double* values, size_t count) = 0;
  virtual bool is_read(size_t read) = 0;
  virtual void wait_until_read(size_t read) = 0;
  virtual std::span<const double> values(size_t read) = 0;

  virtual void synchronize() = 0;

  virtual DeviceUsage usage() = 0;
};

}  // namespace stoker::cuda
