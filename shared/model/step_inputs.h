// StepInputs: which tensors of a sample an exported module gets, and how.
//
// A module that was exported with its loss gets them in their order: the input, the length of padded
// sequences, the targets; one that predicts the next token gets the tokens but the last, and as target
// those but the first. The forward() of one that was exported as a step takes them by name.
//
// Threads: a value; arguments() is a pure function.
// Errors:  bind(): kMismatch, naming both sides. arguments(): exceptions of LibTorch.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/graph/graph_file.h"
#include "shared/model/model.h"

namespace stoker::model {

class StepInputs {
 public:
  static Result<StepInputs> bind(const graph::GraphFile& file,
                                 const std::vector<TensorSpec>& sample);

  // `fields`: as of Model::step(). In the order of the programs train and eval.
  std::vector<at::Tensor> arguments(const NamedTensors& fields) const;
  bool is_predicting() const { return is_predicting_; }

 private:
  enum class Part { kAll, kButLast, kButFirst };  // of the time steps
  struct Input {
    std::string field;
    TensorSpec spec;  // as the module gets it, of one sample
    Part part = Part::kAll;
    bool is_reshaped = false, is_converted = false;
    int64_t min_steps = 0;  // of a second dimension that is free; 0: it is fixed
  };
  static Result<StepInputs> in_order(const graph::GraphFile& file,
                                     const std::vector<TensorSpec>& sample);
  static Result<StepInputs> by_name(const graph::GraphFile& file,
                                    const std::vector<TensorSpec>& sample);

  std::vector<Input> inputs_;
  bool is_predicting_ = false;
  bool has_length_ = false;
};

}  // namespace stoker::model
