// DeviceEngine: the StepEngine for a device that runs asynchronously to the host. While the device
// computes a step, the next batch is copied to it. Steps are replayed from captured graphs: in a group
// the parts between the exchanges of the ranks, which run eagerly. Sums of gradients start during the replay
// of the last micro-batch.
//
// A ring slot is released when its copy is complete, and values are delivered when their read is
// complete. The host is at most two batches ahead, so the workers always have slots to fill.
//
// Threads:   the trainer thread only.
// Ownership: must not outlive the ring and the BatchReceiver from whose memory it copies. The
//            destructor waits for pending copies.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/cuda/device_queue.h"
#include "daemon/train/graph_schedule.h"
#include "daemon/train/pinned_memory.h"
#include "daemon/train/step_engine.h"

namespace stoker::train {

struct DeviceEngineOptions {
  c10::Device device = c10::Device(c10::kCPU);  // the device of the queue's buffers
  uint64_t slots = 8;                           // slots of the ring
  bool captures = true;                         // train.cuda_graphs: auto
};

class DeviceEngine final : public StepEngine {
 public:
  // `pinned` page-locks the memory of the batches for the lifetime of this object.
  DeviceEngine(std::unique_ptr<cuda::DeviceQueue> queue,
               std::vector<std::unique_ptr<PinnedMemory>> pinned, DeviceEngineOptions options,
               Calls calls);
  ~DeviceEngine() override;
  DeviceEngine(const DeviceEngine&) = delete;
  DeviceEngine& operator=(const DeviceEngine&) = delete;

  void run(const feed::ReceivedBatch& batch, MicroBatchInfo micro_batch) override;
  void submit(cuda::Work work) override { queue_->submit(std::move(work)); }
  void read(const std::vector<at::Tensor>& scalars, OnRead on_read) override;
  bool poll() override;
  void synchronize() override;
  void drop_captured_work() override;
  CaptureVote capture_vote() const override;
  void on_gradients_complete(size_t sum) override;
  void start_capturing() override { schedule_.agree(); }
  void stop_capturing(const std::string& reason) override;
  bool is_asynchronous() const override { return true; }
  cuda::DeviceUsage device_usage() override { return queue_->usage(); }

 private:
  struct Copying {
    uint64_t ticket;
    size_t slot;
  };
  struct Reading {
    size_t read;
    OnRead on_read;
  };

  // A batch after prepare(). Graphs need its tensors at fixed addresses.
  struct Prepared {
    task::Batch copies;  // of the tensors that prepare() replaced
    task::Batch batch;   // views of the input buffer, or `copies`
  };

  void compute(size_t buffer, const feed::ReceivedBatch& received, MicroBatchInfo micro_batch);
  void prepare(Prepared& prepared, const task::Batch& input, uint64_t ticket,
               MicroBatchInfo micro_batch) const;
  // Returns the mode of the next part of the micro-batch.
  GraphSchedule::Mode run_part(const GraphSchedule::Part& part, GraphSchedule::Mode mode,
                               const cuda::Work& work);
  bool capture(const GraphSchedule::Part& part, const cuda::Work& work);
  void start_sums();
  void disable_capture(const std::string& reason);
  void make_room_for_eager_work();
  void release_oldest();
  void deliver_oldest();

  const DeviceEngineOptions options_;
  const size_t max_copying_;
  const Calls calls_;
  const std::vector<std::unique_ptr<PinnedMemory>> pinned_;
  std::unique_ptr<cuda::DeviceQueue> queue_;
  GraphSchedule schedule_;    // its graphs must be destroyed before the queue
  uint64_t graph_bytes_ = 0;  // memory that only the graphs can use
  bool has_dropped_graphs_ = false;
  bool was_exchanged_ = false;  // by the last exchange
  bool is_capturing_ = false;   // during the function that is captured
  uint64_t replays_since_drop_ = 0;
  // By the shape of the input; the contents belong to submitted work.
  std::array<std::map<std::string, Prepared>, cuda::DeviceQueue::kBuffers> prepared_;
  uint64_t batches_ = 0;  // of this process; the ranks of a group have tickets with gaps
  uint64_t reads_ = 0;
  std::deque<Copying> copying_;
  std::deque<Reading> reading_;
};

}  // namespace stoker::train
