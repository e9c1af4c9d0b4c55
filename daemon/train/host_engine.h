// HostEngine: the StepEngine of the CPU: a batch's tensors are views of its ring slot, everything is
// done before a call returns.
//
// Threads:  the trainer's thread only.
// Blocking: run() while it computes.
#pragma once

#include <utility>

#include "daemon/train/step_engine.h"
#include "shared/feed/batch_shapes.h"

namespace stoker::train {

class HostEngine final : public StepEngine {
 public:
  HostEngine(feed::BatchShapes shapes, Calls calls)
      : shapes_(std::move(shapes)), calls_(std::move(calls)) {}

  void run(const ring::ReadyBatch& batch, Portion portion) override;
  void read(const std::vector<at::Tensor>& scalars, Take take) override;
  bool poll() override { return false; }
  void settle() override {}
  cuda::DeviceUse use() override { return use_; }

 private:
  const feed::BatchShapes shapes_;
  const Calls calls_;
  cuda::DeviceUse use_;
};

}  // namespace stoker::train
