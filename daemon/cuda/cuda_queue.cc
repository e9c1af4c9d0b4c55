#include "daemon/cuda/cuda_queue.h"

#include <cuda_runtime_api.h>

#include <array>
#include <vector>

#include <ATen/cuda/CUDAEvent.h>
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

// A host that waits sleeps: its core belongs to the readers.
constexpr unsigned kEventFlags = cudaEventDisableTiming | cudaEventBlockingSync;

class CudaGraph final : public Graph {
 public:
  // All graphs of a queue take their memory from one pool: none of them is replayed beside another,
  // and nothing of one's inner memory is read after it.
  CudaGraph(const std::function<void()>& work, at::cuda::MempoolId_t pool) {
    // ThreadLocal: threads that have nothing to do with it (the checkpoint writer) may go on.
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      end_broken_capture();
      throw;
    }
    graph_.capture_end();
  }
  void replay() override { graph_.replay(); }

 private:
  void end_broken_capture() {
    try {
      graph_.capture_end();
    } catch (const c10::Error&) {
      (void)cudaGetLastError();  // what broke it is reported; this is its echo
    }
  }

  at::cuda::CUDAGraph graph_;
};

// Page-locked memory for numbers on their way to the host.
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

  double* of(size_t read) { return values_ + read * DeviceQueue::kMostValues; }

 private:
  static constexpr size_t kBytes = DeviceQueue::kReads * DeviceQueue::kMostValues * sizeof(double);
  double* values_ = nullptr;
};

class CudaQueue final : public DeviceQueue {
 public:
  explicit CudaQueue(const QueueSettings& settings)
      : device_(static_cast<c10::DeviceIndex>(settings.device)),
        before_((c10::cuda::set_device(device_), c10::cuda::getCurrentCUDAStream(device_))),
        work_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device_)),
        copies_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_)),
        pool_(at::cuda::graph_pool_handle()) {
    // The model was made on another stream.
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    c10::cuda::setCurrentCUDAStream(work_);
    const auto options =
        at::TensorOptions().dtype(at::kByte).device(c10::Device(c10::kCUDA, device_));
    for (at::Tensor& input : inputs_)
      input = at::empty({static_cast<int64_t>(settings.slot_bytes)}, options);
    for (size_t slot = 0; slot < settings.slots; ++slot) copied_.emplace_back(kEventFlags);
    for (size_t buffer = 0; buffer < kBuffers; ++buffer) worked_.emplace_back(kEventFlags);
    for (size_t read = 0; read < kReads; ++read) read_.emplace_back(kEventFlags);
    for (size_t i = 0; i < kTimed; ++i) {
      began_.emplace_back(cudaEventBlockingSync);
      ended_.emplace_back(cudaEventBlockingSync);
    }
  }
  ~CudaQueue() override {
    C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
    c10::cuda::setCurrentCUDAStream(before_);
  }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  void* input(size_t buffer) override { return inputs_[buffer].data_ptr(); }

  void start_copy(size_t buffer, size_t slot, std::span<const std::byte> bytes) override {
    worked_[buffer].block(copies_);  // an event that was never recorded blocks nothing
    C10_CUDA_CHECK(cudaMemcpyAsync(input(buffer), bytes.data(), bytes.size(),
                                   cudaMemcpyHostToDevice, copies_.stream()));
    copied_[slot].record(copies_);
  }
  bool is_copied(size_t slot) override { return copied_[slot].query(); }
  void wait_until_copied(size_t slot) override { copied_[slot].synchronize(); }

  void begin_work(size_t slot) override {
    copied_[slot].block(work_);
    take_time();
    began_[works_ % kTimed].record(work_);
  }
  void end_work(size_t buffer) override {
    ended_[works_++ % kTimed].record(work_);
    worked_[buffer].record(work_);
  }

  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    c10::cuda::CUDACachingAllocator::emptyCache();  // what the plain steps held, the graph may need
    return std::make_unique<CudaGraph>(work, pool_);
  }

  void start_read(size_t read, const double* values, size_t count) override {
    counts_[read] = count;
    C10_CUDA_CHECK(cudaMemcpyAsync(values_.of(read), values, count * sizeof(double),
                                   cudaMemcpyDeviceToHost, work_.stream()));
    read_[read].record(work_);
  }
  bool is_read(size_t read) override { return read_[read].query(); }
  void wait_until_read(size_t read) override { read_[read].synchronize(); }
  std::span<const double> values(size_t read) override { return {values_.of(read), counts_[read]}; }

  void synchronize() override { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

  DeviceUse use() override {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device_);
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    DeviceUse use = timed_;
    use.allocated_bytes = static_cast<uint64_t>(stats.allocated_bytes[kAll].current);
    use.reserved_bytes = static_cast<uint64_t>(stats.reserved_bytes[kAll].current);
    use.peak_bytes = static_cast<uint64_t>(stats.allocated_bytes[kAll].peak);
    return use;
  }

 private:
  static constexpr size_t kTimed = 4;  // pieces of work that may be under way

  // Of the work whose events are recorded next. One that is not done yet is not counted.
  void take_time() {
    const size_t next = works_ % kTimed;
    if (works_ < kTimed || !ended_[next].query()) return;
    timed_.work_ms += static_cast<double>(began_[next].elapsed_time(ended_[next]));
    ++timed_.works;
  }

  const c10::DeviceIndex device_;
  const CUDAStream before_, work_, copies_;
  const at::cuda::MempoolId_t pool_;
  std::array<at::Tensor, kBuffers> inputs_;
  std::vector<CUDAEvent> copied_;         // by slot of the ring
  std::vector<CUDAEvent> worked_;         // by buffer
  std::vector<CUDAEvent> read_;           // by read
  std::vector<CUDAEvent> began_, ended_;  // by work, the last kTimed
  uint64_t works_ = 0;                    // that were begun and ended
  DeviceUse timed_;                       // its times only
  std::array<size_t, kReads> counts_{};
  PinnedValues values_;
};

}  // namespace

std::unique_ptr<DeviceQueue> open_cuda_queue(const QueueSettings& settings) {
  return std::make_unique<CudaQueue>(settings);
}

}  // namespace stoker::cuda
