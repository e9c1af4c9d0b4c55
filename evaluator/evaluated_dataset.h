// EvaluatedDataset: a set of eval.datasets, with what scores a model on it.
//
// Threads: one.
// Errors:  open_evaluated_datasets(): the data set's (kNotFound, kCorrupt, …); kMismatch: no one model takes all sets.
//          What LibTorch throws is for the caller.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "evaluator/class_mapping.h"
#include "evaluator/sample_batches.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/dataset/dataset.h"
#include "shared/task/task.h"

namespace stoker::evaluator {

struct EvaluatedDataset {
  std::string name;
  std::unique_ptr<dataset::Dataset> data;
  std::unique_ptr<task::Task> task;
  SampleBatches batches;  // for all checkpoints: sorting a large set by length takes its time
};

// `index_dir`: where their indexes are, or are made.
Result<std::vector<EvaluatedDataset>> open_evaluated_datasets(const config::Config& config,
                                                              const std::string& index_dir,
                                                              const ClassMapping& train);

}  // namespace stoker::evaluator
