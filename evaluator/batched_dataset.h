// BatchedDataset: a dataset of eval.datasets that is read in batches.
//
// Threads: one.
// Errors:  open_batched_datasets(): those of open_evaluated_dataset(); kMismatch if no single model
//          accepts all datasets. LibTorch exceptions propagate to the caller.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "evaluator/sample_batches.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/record/class_mapping.h"
#include "shared/evaluated_data/evaluated_dataset.h"

namespace stoker::evaluator {

struct BatchedDataset : evaluated_data::EvaluatedDataset {
  SampleBatches batches;  // reused for all checkpoints; bucketing a large dataset is slow
};

// `index_dir`, `feed_program`: as OpenOptions. kCancelled: `stop` while a dataset was indexed.
Result<std::vector<BatchedDataset>> open_batched_datasets(const config::Config& config,
                                                          const std::string& index_dir,
                                                          const data::record::ClassMapping& train,
                                                          const std::string& feed_program,
                                                          const std::stop_token& stop = {});

}  // namespace stoker::evaluator
