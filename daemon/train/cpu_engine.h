// CpuEngine: the StepEngine of the CPU: a batch's tensors are views of its ring slot, everything is
// done before a call returns.
//
// Threads:  the trainer's thread only.
// Blocking: run() while it computes.
#pragma once

#include <utility>

#include "daemon/train/step_engine.h"
#include "shared/feed/batch_shapes.h"

namespace stoker::train {

class CpuEngine final : public StepEngine {
 public:
  CpuEngine(feed::BatchShapes shapes, Calls calls)
      : shapes_(std::move(shapes)), calls_(std::move(calls)) {}

  void run(const ring::ReadyBatch& batch, MicroBatchInfo micro_batch) override;
  void read(const std::vector<at::Tensor>& scalars, OnRead on_read) override;
  bool poll() override { return false; }
  void synchronize() override {}
  cuda::DeviceUsage device_usage() override { return usage_; }

 private:
  const feed::BatchShapes shapes_;
  const Calls calls_;
  cuda::DeviceUsage usage_;
};

}  // namespace stoker::train
