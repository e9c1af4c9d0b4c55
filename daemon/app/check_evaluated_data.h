// check_evaluated_data: opens the datasets that stoker-eval will evaluate, with its indexes and as it
// will, so that an error in them is found before training and not by the first evaluation.
//
// Threads:  functions of their arguments; a lock protects the indexes.
// Blocking: for the disk, as open_dataset(); the index that is built is that of the evaluator.
// Errors:   those of open_evaluated_dataset(), with the name of the dataset; kMismatch: one model does
//           not accept both its samples and those of data.train. LibTorch exceptions propagate to the
//           caller.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/config/config.h"
#include "shared/data/record/class_mapping.h"
#include "shared/data/source.h"
#include "shared/evaluated_data/evaluated_dataset.h"

namespace stoker::app {

// Called while a dataset is indexed, as files::ScanProgress; may throw data::files::ScanStopped.
using OnIndexing = std::function<void(const std::string& dataset, uint64_t count,
                                      std::string_view what, double fraction)>;

// The names of eval.datasets without train, which the run opens anyway.
std::vector<std::string> evaluated_datasets(const config::Config& config);

// `train`: its classes and columns; of data.train, if that could be opened.
Result<evaluated_data::EvaluatedDataset> open_for_check(const config::Config& config,
                                                        const std::string& name,
                                                        const data::record::ClassMapping& train,
                                                        const std::string& index_dir,
                                                        const OnIndexing& on_indexing);

// The shapes of the tensors of the model for such samples, by name. Its weights are not initialized.
using TensorShapes = std::map<std::string, std::vector<int64_t>>;
Result<TensorShapes> model_shapes(const config::Config& config,
                                  const std::vector<TensorSpec>& sample, uint64_t classes);

// Whether the model of `train` is also that of `evaluated`. Builds models only if their samples have
// different tensors.
Status check_same_model(const config::Config& config, const data::DatasetInfo& train,
                        const evaluated_data::EvaluatedDataset& evaluated);

// Whether model and task fit the samples of data.train.
Status check_training_data(const config::Config& config, const data::DatasetInfo& train);

// All of evaluated_datasets(), up to the first error, which is that of check_training_data() if there
// is one.
Status check_evaluated_data(const config::Config& config, const data::Source& train,
                            const std::string& index_dir, const OnIndexing& on_indexing);

// The error with "data.NAME: " before it, unless it names the dataset.
Status with_dataset(const Status& error, const std::string& name);

}  // namespace stoker::app
