// Histograms: records the distribution of each parameter and its gradient at a step interval.
//
// Gradients are those of the complete step before clipping; parameters are those after the update.
//
// Threads:   the trainer thread only.
// Blocking:  waits for the device at the end of a recorded step.
// Ownership: the model must outlive this object.
// Errors:    LibTorch's exceptions pass through on_gradients() and end_step().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/metrics/tensor_summary.h"
#include "shared/model/model.h"

namespace stoker::train {

class Histograms {
 public:
  using Report = std::function<void(uint64_t step, std::vector<metrics::NamedSummary> summaries)>;

  // With `every_steps` 0, or without `report`, nothing is recorded.
  Histograms(const model::Model& model, uint64_t every_steps, Report report);

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
  const Report report_;
  bool is_active_ = false;  // records the current step
  std::vector<Seen> seen_;
};

}  // namespace stoker::train
