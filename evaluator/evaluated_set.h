// EvaluatedSet: a set of eval.datasets, with what scores a model on it.
//
// Threads: one.
// Errors:  open_sets(): the data set's (kNotFound, kCorrupt, …); kMismatch: no one model takes all sets.
//          What LibTorch throws is for the caller.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "evaluator/sample_batches.h"
#include "evaluator/train_classes.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/dataset/dataset.h"
#include "shared/task/task.h"

namespace stoker::evaluator {

struct EvaluatedSet {
  std::string name;
  std::unique_ptr<dataset::Dataset> data;
  std::unique_ptr<task::Task> task;
  SampleBatches batches;  // for all checkpoints: sorting a large set by length takes its time
};

// `index_dir`: where their indexes are, or are made.
Result<std::vector<EvaluatedSet>> open_sets(const config::Config& config,
                                            const std::string& index_dir,
                                            const TrainClasses& train);

}  // namespace stoker::evaluator
