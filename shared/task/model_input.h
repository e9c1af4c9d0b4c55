// ModelInput: what of a batch a model reads: its `input` or `tokens`, and, where samples of various
// lengths are padded to one, their `length`.
//
// Threads: values and functions of their arguments.
// Errors:  LibTorch's exceptions pass through.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shared/task/preprocess_input.h"
#include "shared/task/task.h"

namespace stoker::task {

struct ModelInput {
  size_t values = 0;  // where in a batch
  bool is_tokens = false;
  std::optional<size_t> maybe_length;
  Normalization normalization = {};
};

// `task` is for the message. kMismatch: the data has neither `input` nor `tokens`, or a `length` that
// is no I64 [].
Result<ModelInput> find_model_input(const config::Normalize* maybe_normalize,
                                    const std::vector<TensorSpec>& sample, const std::string& task);

// The steps of a sample: of `tokens` [steps] or of an `input` [steps, features]. kMismatch: it is no
// sequence.
Result<int64_t> num_time_steps(const ModelInput& input, const std::vector<TensorSpec>& sample,
                               const std::string& task);

// What the model is given.
at::Tensor input_values(const Batch& batch, const ModelInput& input);
// I64 [batch]: how many of the `steps` are real, which no file can make more than there are;
// undefined where all are.
at::Tensor sequence_lengths(const Batch& batch, const ModelInput& input, int64_t steps);

// What the model says: F32.
at::Tensor model_outputs(model::Model& model, const Batch& batch, const ModelInput& input);
// The same in training, with what an auxiliary head says; in the model's own format.
model::Outputs training_outputs(model::Model& model, const Batch& batch, const ModelInput& input);

}  // namespace stoker::task
