// EvaluatedDataset: a dataset of eval.datasets with the classes and columns of data.train, and the task
// that computes its metrics. stoker-eval evaluates it; stokerd opens it once before training, so that
// an error is found then.
//
// Threads: one.
// Errors:  open_evaluated_dataset(): those of opening a dataset (kNotFound, kCorrupt, …) and of its
//          worker process (shared/feed/sandboxed_dataset.h); kMismatch: its classes, columns or
//          tensors do not fit data.train or the task. check_same_inputs(): kMismatch. LibTorch
//          exceptions propagate to the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "shared/base/resource_use.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"
#include "shared/data/files/scan.h"
#include "shared/data/record/class_mapping.h"
#include "shared/task/task.h"

namespace stoker::evaluated_data {

struct EvaluatedDataset {
  std::string name;
  std::unique_ptr<data::Dataset> data;
  std::unique_ptr<task::Task> task;
  // Whether the worker process has quarantined this sample; empty: there is none.
  std::function<bool(uint64_t sample)> is_quarantined;
  std::function<ProcessUse()> worker_use;  // so far; empty: there is none
};

enum class Reads { kSamples, kNothing };

struct OpenOptions {
  std::string index_dir;     // of the dataset indexes; missing ones are built there
  std::string feed_program;  // empty: feed::find_feed_program()
  data::files::ScanProgress progress;
  // kSamples: a worker process reads them, which ends with the calling thread; with
  // feed.num_processes: 0, this process.
  Reads reads = Reads::kSamples;
};

// kCancelled: the progress callback has thrown ScanStopped. `config` must outlive the dataset.
Result<EvaluatedDataset> open_evaluated_dataset(const config::Config& config,
                                                const std::string& name,
                                                const data::record::ClassMapping& train,
                                                const OpenOptions& options);

// Checks that one model accepts both datasets.
Status check_same_inputs(const EvaluatedDataset& dataset, const EvaluatedDataset& first);

}  // namespace stoker::evaluated_data
