// Histograms: records the distribution of each parameter and its gradient at a step interval.
//
// Gradients are those of the complete step before clipping; parameters are those after the update.
//
// Threads:   the trainer thread only.
// Blocking:  waits for the device at the end of a recorded step.
// Ownership: the model and the sink must outlive this object.
// Errors:    LibTorch's exceptions pass through on_gradients() and end_step().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/train/metrics_sink.h"
#include "shared/model/model.h"

namespace stoker::train {

class Histograms {
 public:
  // With `every_steps` 0 nothing is recorded.
  Histograms(const model::Model& model, uint64_t every_steps, MetricsSink& sink)
      : model_(model), every_steps_(every_steps), sink_(sink) {}

  // Call in this order in each step; `step` is its number, starting at 1.
  void begin_step(uint64_t step) { is_active_ = every_steps_ > 0 && step % every_steps_ == 0; }
  bool is_active() const { return is_active_; }
  void on_gradients();
  void end_step(uint64_t step);

 private:
  struct Seen {
    std::string tag;
    at::Tensor statistics;
  };

  const model::Model& model_;
  const uint64_t every_steps_;
  MetricsSink& sink_;
  bool is_active_ = false;  // records the current step
  std::vector<Seen> seen_;
};

}  // namespace stoker::train
