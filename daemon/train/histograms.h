// Histograms: how each parameter's numbers, and its gradient's, are spread, every so many steps.
//
// Gradients are those of the whole step before clipping, parameters those after its update.
//
// Threads:  the trainer's thread only.
// Blocking: at the end of a step that it looks at, for the device.
// Owner:    the model must outlive it.
// Errors:   LibTorch's exceptions pass through on_gradients() and end_step().
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

  // `every_steps` 0: never.
  Histograms(const model::Model& model, uint64_t every_steps, Report report);

  // In this order in each step, `step` being its number.
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
  bool is_active_ = false;  // at this step
  std::vector<Seen> seen_;
};

}  // namespace stoker::train
