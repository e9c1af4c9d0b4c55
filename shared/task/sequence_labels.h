// SequenceLabels: batch layout of sequence tasks with several labels per sample, `labels` I64.
//
// Threads: values and functions of their arguments.
#pragma once

#include <string>
#include <vector>

#include "shared/task/model_input.h"

namespace stoker::task {

struct SequenceLabels {
  ModelInput input;
  size_t labels = 0;  // index in a batch
};

// `task` is used in the message. kMismatch: the samples are not sequences, or have no such labels.
Result<SequenceLabels> find_sequence_labels(const config::Normalize* maybe_normalize,
                                            const std::vector<TensorSpec>& sample, uint64_t classes,
                                            const std::string& task);

// The model outputs per time step: F32 [batch, steps, outputs]. c10::Error: the outputs have
// another shape.
at::Tensor step_outputs(model::Model& model, const Batch& batch, const ModelInput& input);

// Returns `labels` I64 [batch, steps] with kIgnoredLabel at all steps from `length` I64 [batch] on.
at::Tensor without_padding(const at::Tensor& labels, const at::Tensor& length);

}  // namespace stoker::task
