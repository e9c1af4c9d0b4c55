// DeviceQueue: runs the device side of training steps: asynchronous copies of batches, the work of
// the steps, captured graphs, and delayed reads of values.
//
// The CUDA module implements it for CUDA; tests use an implementation without a device. The
// interface uses bytes and functions, not tensors.
//
// There are two streams, one for copies and one for work. Everything that the calling thread
// submits through LibTorch while the queue exists goes to the work stream.
//
// Threads:   one.
// Blocking:  wait_…() and synchronize() wait for the device, nothing else does.
// Ownership: owns the two input buffers and the host memory for read values.
// Errors:    LibTorch's exceptions (c10::Error), including those caused by work that an earlier
//            call started.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace stoker::cuda {

// Time and memory used by a device, as far as known without waiting for it.
struct DeviceUsage {
  uint64_t works = 0;            // work items whose time is known
  double work_ms = 0;            // total of these items
  uint64_t allocated_bytes = 0;  // allocated to tensors; 0 on the CPU
  uint64_t reserved_bytes = 0;   // reserved by LibTorch's allocator
  uint64_t peak_bytes = 0;       // maximum of allocated_bytes
};

// Host bytes and their position in a buffer.
struct CopyPart {
  size_t offset = 0;
  std::span<const std::byte> bytes;
};

// Captured work that can be replayed on the same memory.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void replay() = 0;
};

class DeviceQueue {
 public:
  static constexpr size_t kBuffers = 2;
  static constexpr size_t kReads = 16;     // maximum reads in flight
  static constexpr size_t kMaxValues = 8;  // per read

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

  // Records the device work of `work` without running it. Exceptions of `work`, and of operations
  // that cannot be captured, pass through; the queue is then unchanged. Waits for the device. The
  // memory of a graph is reserved until it is destroyed; nothing else can use it.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& work) = 0;

  // Waits for the device and returns reserved memory that is not allocated to it.
  virtual void release_cached_memory() = 0;

  // Copies values to the host after the work submitted so far. `values` must stay valid until then.
  virtual void start_read(size_t read, const double* values, size_t count) = 0;
  virtual bool is_read(size_t read) = 0;
  virtual void wait_until_read(size_t read) = 0;
  virtual std::span<const double> values(size_t read) = 0;

  virtual void synchronize() = 0;

  virtual DeviceUsage usage() = 0;
  // Device memory that no process has reserved; calls the driver.
  virtual uint64_t free_bytes() = 0;
};

}  // namespace stoker::cuda
