// CpuEngine: the StepEngine for the CPU. The tensors of a batch are views of the received batch, and
// all work is complete when a call returns.
//
// Threads:  the trainer thread only.
// Blocking: run(), for the computation.
#pragma once

#include <utility>

#include "daemon/train/step_engine.h"

namespace stoker::train {

class CpuEngine final : public StepEngine {
 public:
  explicit CpuEngine(Calls calls) : calls_(std::move(calls)) {}

  void run(const feed::ReceivedBatch& batch, MicroBatchInfo micro_batch) override;
  void submit(cuda::Work work) override { work(); }
  void read(const std::vector<at::Tensor>& scalars, OnRead on_read) override;
  bool poll() override { return false; }
  void synchronize() override {}
  void on_gradients_complete(size_t sum) override { calls_.sums.start(sum); }
  bool is_asynchronous() const override { return false; }
  cuda::DeviceUsage device_usage() override { return usage_; }

 private:
  const Calls calls_;
  cuda::DeviceUsage usage_;
};

}  // namespace stoker::train
