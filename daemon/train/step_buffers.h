// StepBuffers: the buffers of a model, such as the running statistics of batch norm, which forward passes change,
// with their values from the start of the step, which undoing the step restores.
//
// Threads:   the trainer thread only.
// Blocking:  never waits for the device.
// Ownership: shares the buffers, whose addresses never change, and owns the copies; so copy() and restore_if() can
//            be captured.
// Errors:    LibTorch's exceptions pass through.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/model/model.h"

namespace stoker::train {

class StepBuffers {
 public:
  // `model`: on its final device, with its initial values.
  explicit StepBuffers(const model::Model& model);

  // Without it, the following do nothing. Call it where a step can be undone: a copy costs time and memory.
  void keep_copies();
  // At the start of each step.
  void copy();
  void restore();
  // If `is_undone`, a scalar on the device, is 1.
  void restore_if(const at::Tensor& is_undone);
  // The buffers as they are and as they were at copy(), exchanged.
  void swap();

  // Those in which a value that is not finite is an error: it was not in the model from the start, like the
  // -inf of an attention mask.
  const model::NamedTensors& finite() const { return finite_; }
  // Whether one of them has such a value: an F32 scalar on the device, 1 or 0.
  at::Tensor found_nonfinite() const;

 private:
  // The buffers of one dtype: few kernels copy them together.
  struct Part {
    std::vector<at::Tensor> buffers;
    at::Tensor flat;                 // copies; undefined before keep_copies()
    std::vector<at::Tensor> copies;  // views of it
  };

  static at::Tensor flatten(const std::vector<at::Tensor>& tensors);
  static std::vector<at::Tensor> views(const at::Tensor& flat, const std::vector<at::Tensor>& like);

  std::vector<Part> parts_;
  model::NamedTensors finite_;
};

}  // namespace stoker::train
