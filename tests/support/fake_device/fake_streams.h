// FakeStreams: the DeviceStreams of a simulated device, whose memory is host memory and whose kernels
// are LibTorch's for the CPU. It is as asynchronous as CUDA permits:
//
//   - A stream runs in order and as late as its events permit, or earlier, at random. Submitted work
//     runs in a separate thread; a copy moves its bytes in several parts, and work stops between
//     kernels while the host and the other streams continue.
//   - A captured graph contains kernels, their memory and events, not the function that was captured.
//   - Memory is overwritten when it is allocated, freed or handed over: input buffers before a copy,
//     host memory when a copy to it starts, results of graphs before a replay; tensors, too, if
//     install_device_allocator() was called.
//   - An allocation, also within an operator, or a kernel can fail. After a failed kernel, nothing runs any more, and every call
//     throws c10::AcceleratorError with the code of an illegal address.
//
// Exactly one thread runs at a time, which a generator decides: the same seed gives the same schedule,
// as long as the host makes the same calls.
//
// Threads: one, like every DeviceStreams; submitted work is called in a thread of this object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <semaphore>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "daemon/cuda/device_streams.h"
#include "tests/support/fake_device/op_recorder.h"

namespace stoker::fake_device {

// What happened, for tests; shared with them.
struct FakeDeviceLog {
  std::set<std::string> fences;         // what was waited for, such as "wait copied"
  std::vector<std::string> violations;  // what a device would answer with undefined behavior
  uint64_t submissions = 0, kernels = 0, captures = 0, failed_captures = 0, replays = 0;
  uint64_t late_works = 0;  // that ran after a later submission
  uint64_t early_sums = 0;  // whose start ran before the work submitted earlier was complete
};

struct FakeDeviceOptions {
  uint64_t seed = 0;
  std::string removed_fence;  // one of FakeDeviceLog::fences, which then has no effect
  // Fences are distinguished by the call that waits, not only by what it waits for: "wait copied in
  // DeviceEngine::run+31, Trainer::do_step+420". For functions that the executable exports.
  bool is_fence_per_call = false;
  bool is_lazy = false;              // nothing runs unless the host waits for it
  double min_pause_probability = 0;  // of work, before each kernel
  // Counted from 0; nullopt: never. An allocation fails in this submission, this capture, or of the
  // memory of this interface.
  std::optional<uint64_t> failing_submission, failing_capture, failing_allocation;
  std::optional<uint64_t> failing_kernel;
  bool is_all_pinned = false;    // all memory of the host, not only what was given to pin()
  bool is_memory_short = false;  // sometimes, free_bytes() is 0
  std::shared_ptr<FakeDeviceLog> log = std::make_shared<FakeDeviceLog>();
};

class FakeStreams final : public cuda::DeviceStreams, private OperatorHook {
 public:
  explicit FakeStreams(FakeDeviceOptions options);
  ~FakeStreams() override;

  void* allocate(size_t bytes) override;
  std::span<double> allocate_host(size_t count) override;
  Event make_event(std::string name, EventUse use) override;
  void record(Event event, Stream stream) override;
  void wait(Stream stream, Event event) override;
  bool is_complete(Event event) override;
  void synchronize(Event event) override;
  double elapsed_ms(Event begin, Event end) override;
  void copy_to_device(void* to, std::span<const std::byte> from) override;
  void copy_to_host(double* to, const double* from, size_t count) override;
  void submit(cuda::Work work) override;
  void submit_sums(cuda::Work work) override;
  void call(const cuda::Work& work) override;
  std::unique_ptr<cuda::Graph> capture(const cuda::Work& work) override;
  void synchronize() override;
  void release_cached_memory() override;
  cuda::DeviceUsage memory() override;
  uint64_t free_bytes() override;

 private:
  static constexpr size_t kStreams = 3;
  // A piece of work of a stream. Runs in parts; `run` returns whether it is complete.
  struct Item {
    std::function<bool()> run;
    std::function<bool()> is_ready;  // empty: always
  };
  struct EventState {
    std::string name;
    EventUse use = EventUse::kOrder;
    uint64_t recorded = 0;  // number of record() calls
    uint64_t completed = 0;
    uint64_t completed_at = 0;  // by num_parts_
  };
  struct Call;  // of a function in the thread
  class FakeGraph;
  struct GraphState;

  // ---- The schedule
  std::deque<Item>& queue_of(Stream stream) { return queues_[static_cast<size_t>(stream)]; }
  bool chance(double probability);
  size_t below(size_t count);
  void change_pace();
  bool can_run(size_t stream) const;
  void run(size_t stream);  // one part
  bool run_some();          // of a stream that can run; false: none can
  void run_at_random();
  bool are_idle() const;  // the streams
  template <typename Condition>
  void run_until(const Condition& condition);
  void wait_for_streams();  // as captures and the driver do, which is no fence of the caller
  bool is_removed(std::string fence);
  bool is_within_capture(const char* call);  // which is a violation
  void count_allocation();
  void begin_call();  // of this interface: time passes, and errors are reported
  void check();

  // ---- The thread of the work stream
  // `fails_after` allocations, one fails, which the host has noticed already.
  std::shared_ptr<Call> enqueue(cuda::Work work, std::optional<uint64_t> fails_after = {});
  void count_submission();
  bool resume(Call& call);
  void run_thread();
  void yield();
  void before_kernel();
  void on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack& stack) override;
  void on_kernel(const std::function<void()>& kernel) override;

  void fail_kernel();
  void violate(const std::string& what) { log_->violations.push_back(what); }

  const FakeDeviceOptions options_;
  const std::shared_ptr<FakeDeviceLog> log_;
  std::mt19937_64 random_;
  double eagerness_[kStreams] = {};  // 0: runs only while the host waits
  double pause_probability_ = 0;
  std::deque<Item> queues_[kStreams];
  uint64_t num_parts_ = 0;  // that have run: the time of the device, one millisecond each
  std::vector<EventState> events_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::vector<double>> host_memory_;
  std::vector<std::weak_ptr<GraphState>> graphs_;
  uint64_t allocations_ = 0;                  // of this interface
  uint64_t works_ = 0, completed_works_ = 0;  // functions of the work stream
  bool has_failed_ = false;                   // a kernel; permanent
  std::exception_ptr maybe_error_;            // of a function; reported once

  // Only one of the host and the thread runs. What follows and everything above is handed over.
  std::binary_semaphore to_thread_{0}, to_host_{0};
  Call* maybe_running_ = nullptr;
  GraphState* maybe_recording_ = nullptr;
  bool is_ending_ = false;
  std::thread thread_;
};

// ---- Page-locked host memory, of all devices of the process.

bool pin(void* bytes, size_t size);
void unpin(void* bytes);
bool is_pinned(const void* bytes, size_t size);
void poison(void* bytes, size_t size);

}  // namespace stoker::fake_device
