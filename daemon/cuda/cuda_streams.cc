#include "daemon/cuda/cuda_streams.h"

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Generator.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorOptions.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace stoker::cuda {
namespace {

using at::cuda::CUDAEvent;
using c10::cuda::CUDAStream;

// Blocking sync: the waiting host thread sleeps, which leaves its core to the workers.
constexpr unsigned kEventFlags = cudaEventDisableTiming | cudaEventBlockingSync;

unsigned flags_of(DeviceStreams::EventUse use) {
  switch (use) {
    case DeviceStreams::EventUse::kOrder:
      return kEventFlags;
    case DeviceStreams::EventUse::kTime:
      return cudaEventBlockingSync;
    case DeviceStreams::EventUse::kGraph:
      return kEventFlags |
             cudaEventExternal;  // LibTorch's flag: a node of the graph that is captured
  }
  return kEventFlags;
}

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

// All graphs that exist at a time share one memory pool: graphs never run concurrently, and the
// internal memory of a graph is not read after its replay. LibTorch's host allocator rejects a pool
// whose last graph was destroyed, or whose only capture failed. Then the next graph has a new one.
using SharedPool = std::shared_ptr<const at::cuda::MempoolId_t>;

class CudaGraph final : public Graph {
 public:
  CudaGraph(const std::function<void()>& work, c10::DeviceIndex device, SharedPool pool)
      : pool_(std::move(pool)) {
    try {
      // ThreadLocal: unrelated threads (the checkpoint writer) can use CUDA during the capture.
      graph_.capture_begin(*pool_, cudaStreamCaptureModeThreadLocal);
      run_captured(work);
    } catch (...) {
      FailedCapture(device, *pool_).clear();
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

  const SharedPool pool_;
  at::cuda::CUDAGraph graph_;
};

// Page-locked host memory.
class PinnedValues {
 public:
  explicit PinnedValues(size_t count) : count_(count) {
    void* memory = nullptr;
    C10_CUDA_CHECK(cudaMallocHost(&memory, count * sizeof(double)));
    values_ = static_cast<double*>(memory);
  }
  ~PinnedValues() { C10_CUDA_CHECK_WARN(cudaFreeHost(values_)); }
  PinnedValues(const PinnedValues&) = delete;
  PinnedValues& operator=(const PinnedValues&) = delete;

  std::span<double> span() { return {values_, count_}; }

 private:
  const size_t count_;
  double* values_ = nullptr;
};

struct Streams {
  CUDAStream work, copy, sums;
};

// Objects that follow each other, as after a rollback, use the same streams: LibTorch caches memory,
// and cuBLAS has a workspace, per stream.
const Streams& streams_of(c10::DeviceIndex device) {
  static std::map<c10::DeviceIndex, Streams> streams;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto known = streams.find(device);
  if (known != streams.end()) return known->second;
  return streams
      .emplace(device, Streams{c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device),
                               c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device),
                               c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)})
      .first->second;
}

class CudaStreams final : public DeviceStreams {
 public:
  explicit CudaStreams(int device)
      : device_(static_cast<c10::DeviceIndex>(device)),
        previous_stream_(
            (c10::cuda::set_device(device_), c10::cuda::getCurrentCUDAStream(device_))),
        streams_(streams_of(device_)) {
    // The model was created on another stream.
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    c10::cuda::setCurrentCUDAStream(streams_.work);
  }
  ~CudaStreams() override {
    C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
    // LibTorch does not free them otherwise. No graph is left that uses them.
    at::cuda::clearCublasWorkspaces();
    c10::cuda::setCurrentCUDAStream(previous_stream_);
  }
  CudaStreams(const CudaStreams&) = delete;
  CudaStreams& operator=(const CudaStreams&) = delete;

  void* allocate(size_t bytes) override {
    const auto options =
        at::TensorOptions().dtype(at::kByte).device(c10::Device(c10::kCUDA, device_));
    memory_.push_back(at::empty({static_cast<int64_t>(bytes)}, options));
    return memory_.back().data_ptr();
  }
  std::span<double> allocate_host(size_t count) override {
    host_memory_.push_back(std::make_unique<PinnedValues>(count));
    return host_memory_.back()->span();
  }

  Event make_event(std::string, EventUse use) override {
    events_.emplace_back(flags_of(use));
    if (use == EventUse::kGraph) events_.back().create(device_);  // a capture only records it
    return events_.size() - 1;
  }
  void record(Event event, Stream stream) override { events_[event].record(of(stream)); }
  void wait(Stream stream, Event event) override { events_[event].block(of(stream)); }
  bool is_complete(Event event) override { return events_[event].query(); }
  void synchronize(Event event) override { events_[event].synchronize(); }
  double elapsed_ms(Event begin, Event end) override {
    return static_cast<double>(events_[begin].elapsed_time(events_[end]));
  }

  void copy_to_device(void* to, std::span<const std::byte> from) override {
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice,
                                   streams_.copy.stream()));
  }
  void copy_to_host(double* to, const double* from, size_t count) override {
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from, count * sizeof(double), cudaMemcpyDeviceToHost,
                                   streams_.work.stream()));
  }

  void submit(Work work) override { work(); }
  void submit_sums(Work work) override {
    const c10::cuda::CUDAStreamGuard on_sums(streams_.sums);
    work();
  }
  void call(const Work& work) override { work(); }
  std::unique_ptr<Graph> capture(const Work& work) override {
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    SharedPool pool = pool_.lock();
    if (!pool) pool = std::make_shared<const at::cuda::MempoolId_t>(at::cuda::graph_pool_handle());
    pool_ = pool;
    return std::make_unique<CudaGraph>(work, device_, std::move(pool));
  }

  void synchronize() override { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
  void release_cached_memory() override {
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    c10::cuda::CUDACachingAllocator::emptyCache();
  }
  DeviceUsage memory() override {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device_);
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    DeviceUsage use;
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
  const CUDAStream& of(Stream stream) const {
    switch (stream) {
      case Stream::kWork:
        return streams_.work;
      case Stream::kCopy:
        return streams_.copy;
      case Stream::kSums:
        return streams_.sums;
    }
    return streams_.work;
  }

  const c10::DeviceIndex device_;
  const CUDAStream previous_stream_;
  const Streams streams_;
  std::weak_ptr<const at::cuda::MempoolId_t> pool_;  // of the graphs that exist
  std::vector<at::Tensor> memory_;
  std::vector<std::unique_ptr<PinnedValues>> host_memory_;
  std::vector<CUDAEvent> events_;
};

}  // namespace

std::unique_ptr<DeviceStreams> open_cuda_streams(int device) {
  return std::make_unique<CudaStreams>(device);
}

}  // namespace stoker::cuda
