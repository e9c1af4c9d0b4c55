#include "daemon/cuda/cuda_queue.h"

#include <cuda_runtime_api.h>

#include <array>
#include <map>
#include <mutex>
#include <vector>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Generator.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorOptions.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

namespace stoker::cuda {
namespace {

using at::cuda::CUDAEvent;
using c10::cuda::CUDAStream;

// Blocking sync: the waiting host thread sleeps, which leaves its core to the workers.
constexpr unsigned kEventFlags = cudaEventDisableTiming | cudaEventBlockingSync;

// Cleans up after a failed capture. LibTorch otherwise behaves as if the capture were still
// running: its allocator keeps cached memory even when memory runs out, and its generator fails
// to generate numbers. CUDAGraph::capture_end() (LibTorch 2.11) stops at its first error, which is
// the one that reports the failed capture. The steps it did not reach are done here.
class FailedCapture {
 public:
  FailedCapture(c10::DeviceIndex device, at::cuda::MempoolId_t pool)
      : device_(device), pool_(pool) {}

  void clear() const {
    (void)cudaGetLastError();  // clears the error that was already reported
    // Each of these throws if capture_end() already did it.
    attempt([this] {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool_);
      c10::cuda::CUDACachingAllocator::releasePool(device_, pool_);
    });
    attempt([this] {
      at::HostAllocator& host = *at::getHostAllocator(at::kCUDA);
      host.end_allocate_to_pool(pool_);
      host.release_pool(pool_);
    });
    attempt([this] { reset_generator(); });
  }

 private:
  template <typename Work>
  static void attempt(const Work& work) {
    try {
      work();
    } catch (const c10::Error&) {
    }
  }

  // A generator that took part in a capture stays in capture mode. It therefore takes over the
  // state of a new generator that was set to the same values. The capture itself generated no
  // numbers.
  void reset_generator() const {
    at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(device_);
    at::Generator new_generator = at::cuda::detail::createCUDAGenerator(device_);
    const std::lock_guard lock(generator.mutex());
    new_generator.set_state(generator.get_state());
    generator.graphsafe_set_state(new_generator.graphsafe_get_state());
  }

  const c10::DeviceIndex device_;
  const at::cuda::MempoolId_t pool_;
};

class CudaGraph final : public Graph {
 public:
  // All graphs of a queue share one memory pool: graphs never run concurrently, and the internal
  // memory of a graph is not read after its replay.
  CudaGraph(const std::function<void()>& work, c10::DeviceIndex device,
            at::cuda::MempoolId_t pool) {
    try {
      // ThreadLocal: unrelated threads (the checkpoint writer) can use CUDA during the capture.
      graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
      run_captured(work);
    } catch (...) {
      FailedCapture(device, pool).clear();
      throw;
    }
  }
  void replay() override { graph_.replay(); }

 private:
  void run_captured(const std::function<void()>& work) {
    try {
      work();
    } catch (...) {
      try {
        graph_.capture_end();
      } catch (const c10::Error&) {  // the original error is rethrown
      }
      throw;
    }
    graph_.capture_end();
  }

  at::cuda::CUDAGraph graph_;
};

// Page-locked memory for values that are read back to the host.
class PinnedValues {
 public:
  PinnedValues() {
    void* memory = nullptr;
    C10_CUDA_CHECK(cudaMallocHost(&memory, kBytes));
    values_ = static_cast<double*>(memory);
  }
  ~PinnedValues() { C10_CUDA_CHECK_WARN(cudaFreeHost(values_)); }
  PinnedValues(const PinnedValues&) = delete;
  PinnedValues& operator=(const PinnedValues&) = delete;

  double* of(size_t read) { return values_ + read * DeviceQueue::kMaxValues; }

 private:
  static constexpr size_t kBytes = DeviceQueue::kReads * DeviceQueue::kMaxValues * sizeof(double);
  double* values_ = nullptr;
};

struct Streams {
  CUDAStream work, copy;
};

// Queues that follow each other, as after a rollback, use the same streams: LibTorch caches memory,
// and cuBLAS has a workspace, per stream.
const Streams& streams_of(c10::DeviceIndex device) {
  static std::map<c10::DeviceIndex, Streams> streams;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto known = streams.find(device);
  if (known != streams.end()) return known->second;
  return streams
      .emplace(device, Streams{c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device),
                               c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)})
      .first->second;
}

class CudaQueue final : public DeviceQueue {
 public:
  explicit CudaQueue(const QueueOptions& queue_options)
      : device_(static_cast<c10::DeviceIndex>(queue_options.device)),
        previous_stream_(
            (c10::cuda::set_device(device_), c10::cuda::getCurrentCUDAStream(device_))),
        work_stream_(streams_of(device_).work),
        copy_stream_(streams_of(device_).copy),
        pool_(at::cuda::graph_pool_handle()) {
    // The model was created on another stream.
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    c10::cuda::setCurrentCUDAStream(work_stream_);
    const auto options =
        at::TensorOptions().dtype(at::kByte).device(c10::Device(c10::kCUDA, device_));
    for (at::Tensor& input : inputs_)
      input = at::empty({static_cast<int64_t>(queue_options.slot_bytes)}, options);
    for (size_t slot = 0; slot < queue_options.slots; ++slot) copied_.emplace_back(kEventFlags);
    for (size_t buffer = 0; buffer < kBuffers; ++buffer) buffer_done_.emplace_back(kEventFlags);
    for (size_t read = 0; read < kReads; ++read) read_.emplace_back(kEventFlags);
    for (size_t i = 0; i < kMaxTimedItems; ++i) {
      started_.emplace_back(cudaEventBlockingSync);
      finished_.emplace_back(cudaEventBlockingSync);
    }
  }
  ~CudaQueue() override {
    C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
    c10::cuda::setCurrentCUDAStream(previous_stream_);
  }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  void* input(size_t buffer) override { return inputs_[buffer].data_ptr(); }

  void start_copy(size_t buffer, size_t slot, std::span<const CopyPart> parts) override {
    buffer_done_[buffer].block(copy_stream_);  // an unrecorded event does not block
    for (const CopyPart& part : parts)
      C10_CUDA_CHECK(cudaMemcpyAsync(static_cast<std::byte*>(input(buffer)) + part.offset,
                                     part.bytes.data(), part.bytes.size(), cudaMemcpyHostToDevice,
                                     copy_stream_.stream()));
    copied_[slot].record(copy_stream_);
  }
  bool is_copied(size_t slot) override { return copied_[slot].query(); }
  void wait_until_copied(size_t slot) override { copied_[slot].synchronize(); }

  void begin_work(size_t slot) override {
    copied_[slot].block(work_stream_);
    add_elapsed_time();
    started_[num_work_items_ % kMaxTimedItems].record(work_stream_);
  }
  void end_work(size_t buffer) override {
    finished_[num_work_items_++ % kMaxTimedItems].record(work_stream_);
    buffer_done_[buffer].record(work_stream_);
  }

  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    try {
      return std::make_unique<CudaGraph>(work, device_, pool_);
    } catch (...) {
      // LibTorch's host allocator does not accept a pool again whose last use was released.
      pool_ = at::cuda::graph_pool_handle();
      throw;
    }
  }

  void release_cached_memory() override {
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    c10::cuda::CUDACachingAllocator::emptyCache();
  }

  void start_read(size_t read, const double* values, size_t count) override {
    counts_[read] = count;
    C10_CUDA_CHECK(cudaMemcpyAsync(values_.of(read), values, count * sizeof(double),
                                   cudaMemcpyDeviceToHost, work_stream_.stream()));
    read_[read].record(work_stream_);
  }
  bool is_read(size_t read) override { return read_[read].query(); }
  void wait_until_read(size_t read) override { read_[read].synchronize(); }
  std::span<const double> values(size_t read) override { return {values_.of(read), counts_[read]}; }

  void synchronize() override { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

  DeviceUsage usage() override {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device_);
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    DeviceUsage use = usage_;
    use.allocated_bytes = static_cast<uint64_t>(stats.allocated_bytes[kAll].current);
    use.reserved_bytes = static_cast<uint64_t>(stats.reserved_bytes[kAll].current);
    use.peak_bytes = static_cast<uint64_t>(stats.allocated_bytes[kAll].peak);
    return use;
  }

  uint64_t free_bytes() override {
    size_t free = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free;
  }

 private:
  static constexpr size_t kMaxTimedItems = 4;  // maximum number of timed work items in flight

  // Adds the time of the work item whose events are reused next. An unfinished item is not counted.
  void add_elapsed_time() {
    const size_t next = num_work_items_ % kMaxTimedItems;
    if (num_work_items_ < kMaxTimedItems || !finished_[next].query()) return;
    usage_.work_ms += static_cast<double>(started_[next].elapsed_time(finished_[next]));
    ++usage_.works;
  }

  const c10::DeviceIndex device_;
  const CUDAStream previous_stream_, work_stream_, copy_stream_;
  at::cuda::MempoolId_t pool_;  // of the graphs
  std::array<at::Tensor, kBuffers> inputs_;
  std::vector<CUDAEvent> copied_;              // by ring slot
  std::vector<CUDAEvent> buffer_done_;         // by buffer
  std::vector<CUDAEvent> read_;                // by read
  std::vector<CUDAEvent> started_, finished_;  // by work item, the last kMaxTimedItems
  uint64_t num_work_items_ = 0;                // completed begin_work()/end_work() pairs
  DeviceUsage usage_;                          // work times only
  std::array<size_t, kReads> counts_{};
  PinnedValues values_;
};

}  // namespace

std::unique_ptr<DeviceQueue> open_cuda_queue(const QueueOptions& queue_options) {
  return std::make_unique<CudaQueue>(queue_options);
}

}  // namespace stoker::cuda
