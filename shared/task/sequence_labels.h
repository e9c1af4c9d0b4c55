// SequenceLabels: the samples of tasks over sequences whose answers are several labels, `labels` I64:
// where they stand, and what of them counts.
//
// Threads: values and functions of their arguments.
#pragma once

#include <string>
#include <vector>

#include "shared/task/model_input.h"

namespace stoker::task {

struct SequenceLabels {
  ModelInput input;
  size_t labels = 0;  // where in a batch
};

// `task` is for the message. kMismatch: the data's samples are no sequences, or have no such labels.
Result<SequenceLabels> find_sequence_labels(const config::Normalize* maybe_normalize,
                                            const std::vector<TensorSpec>& sample, uint64_t classes,
                                            const std::string& task);

// What the model says of each step: F32 [batch, steps, outputs]. c10::Error: it says something else.
at::Tensor step_outputs(model::Model& model, const Batch& batch, const ModelInput& input);

// `labels` I64 [batch, steps], with kIgnoredLabel in place of those that are not in the first `length`
// I64 [batch] of their steps.
at::Tensor without_padding(const at::Tensor& labels, const at::Tensor& length);

}  // namespace stoker::task
