// EvaluatedDataset: a dataset of eval.datasets and the task that computes its metrics.
//
// Threads: one.
// Errors:  open_evaluated_datasets(): those of opening a dataset (kNotFound, kCorrupt, …) and of its
//          worker process (shared/feed/sandboxed_dataset.h); kMismatch if no single model accepts
//          all datasets. LibTorch exceptions propagate to the caller.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "evaluator/class_mapping.h"
#include "evaluator/sample_batches.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"
#include "shared/task/task.h"

namespace stoker::evaluator {

struct EvaluatedDataset {
  std::string name;
  std::unique_ptr<data::Dataset> data;
  std::unique_ptr<task::Task> task;
  SampleBatches batches;  // reused for all checkpoints; bucketing a large dataset is slow
};

// `index_dir`: the directory of the dataset indexes; missing ones are built there. Samples are read
// in a worker process per dataset, the program `feed_program` (empty: feed::find_feed_program()),
// which ends with the calling thread; with feed.num_processes: 0, in this process. kCancelled:
// `stop` while a dataset was indexed.
Result<std::vector<EvaluatedDataset>> open_evaluated_datasets(const config::Config& config,
                                                              const std::string& index_dir,
                                                              const ClassMapping& train,
                                                              const std::string& feed_program,
                                                              const std::stop_token& stop = {});

}  // namespace stoker::evaluator
