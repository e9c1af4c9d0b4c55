// Task factories: one function per task; arguments and errors as make_task() in task.h.
#pragma once

#include "shared/base/tensor_role.h"
#include "shared/task/task.h"

namespace stoker::task {

using Samples = std::vector<TensorSpec>;

Result<std::unique_ptr<Task>> make_language_modeling(const config::LanguageModelingTask& config,
                                                     const Samples& sample);
Result<std::unique_ptr<Task>> make_classification(
    const config::ClassificationTask& config, const config::Normalize* maybe_normalize,
    const Samples& sample, uint64_t classes,
    const std::vector<config::BatchTransform>& batch_transforms);
// The same for data with a mask: one label per pixel.
Result<std::unique_ptr<Task>> make_pixel_classification(
    const config::ClassificationTask& config, const config::Normalize* maybe_normalize,
    const Samples& sample, uint64_t classes,
    const std::vector<config::BatchTransform>& batch_transforms);
Result<std::unique_ptr<Task>> make_binary_classification(
    const config::BinaryClassificationTask& config, const config::Normalize* maybe_normalize,
    const Samples& sample, uint64_t classes);
Result<std::unique_ptr<Task>> make_regression(const config::RegressionTask& config,
                                              const config::Normalize* maybe_normalize,
                                              const Samples& sample, uint64_t classes);
Result<std::unique_ptr<Task>> make_multilabel_classification(
    const config::MultilabelClassificationTask& config, const config::Normalize* maybe_normalize,
    const Samples& sample, uint64_t classes);
Result<std::unique_ptr<Task>> make_sequence_labeling(const config::SequenceLabelingTask& config,
                                                     const config::Normalize* maybe_normalize,
                                                     const Samples& sample, uint64_t classes);
Result<std::unique_ptr<Task>> make_ctc(const config::CtcTask& config,
                                       const config::Normalize* maybe_normalize,
                                       const Samples& sample, uint64_t classes);

Result<std::unique_ptr<Task>> make_captioning(const config::CaptioningTask& config,
                                              const config::Normalize* maybe_normalize,
                                              const Samples& sample);
// Trains with the model's own loss (Model::loss). `maybe_evaluated`: the task whose metrics an
// evaluation reports; null: only the loss.
Result<std::unique_ptr<Task>> make_custom(std::unique_ptr<Task> maybe_evaluated,
                                          const config::Normalize* maybe_normalize,
                                          const Samples& sample);

// Index of the tensor with this role in a sample, and so in a batch. kMismatch: there is none.
Result<size_t> component_index(const Samples& sample, TensorRole role, const std::string& task);

}  // namespace stoker::task
