// ModelInput: the part of a batch that the model reads: its `input` or `tokens` and, for padded
// sequences, their `length`.
//
// Threads: values and functions of their arguments.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shared/task/preprocess_input.h"
#include "shared/task/task.h"

namespace stoker::task {

struct ModelInput {
  size_t values = 0;  // index in a batch
  bool is_tokens = false;
  std::optional<size_t> maybe_length;
  Normalization normalization = {};
};

// `task` is used in the message. kMismatch: the data has neither `input` nor `tokens`, or `length`
// is not I64 [].
Result<ModelInput> find_model_input(const config::Normalize* maybe_normalize,
                                    const std::vector<TensorSpec>& sample, const std::string& task);

// Number of time steps of a sample: of `tokens` [steps] or of an `input` [steps, features].
// kMismatch: the data is not a sequence.
Result<int64_t> num_time_steps(const ModelInput& input, const std::vector<TensorSpec>& sample,
                               const std::string& task);

// The preprocessed input of the model.
at::Tensor input_values(const Batch& batch, const ModelInput& input);
// I64 [batch]: number of valid time steps of each sequence, limited to `steps` because the values
// come from files; undefined if all steps are valid.
at::Tensor sequence_lengths(const Batch& batch, const ModelInput& input, int64_t steps);

// The outputs of the model as F32.
at::Tensor model_outputs(model::Model& model, const Batch& batch, const ModelInput& input);
// As model_outputs(), [batch, width]. Throws for another shape, because losses would broadcast it.
at::Tensor model_outputs_of_width(model::Model& model, const Batch& batch, const ModelInput& input,
                                  int64_t width);
// The outputs in training mode, including those of an auxiliary head; in the dtype of the model.
model::Outputs training_outputs(model::Model& model, const Batch& batch, const ModelInput& input);

}  // namespace stoker::task
