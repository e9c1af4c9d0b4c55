// Config: every setting of stoker as plain structs, one per section, with the defaults. The
// descriptors of the settings are in settings_*.cc; config/stoker.yaml is generated from them.
//
// Threads: values.
// Errors:  none here; load_config.h turns YAML into these and reports all errors together.
#pragma once

#include <string>
#include <vector>

#include "shared/config/dataset_config.h"
#include "shared/config/feed_config.h"
#include "shared/config/model_config.h"
#include "shared/config/run_config.h"
#include "shared/config/training_config.h"

namespace stoker::config {

// What a run that is resumed may change.
enum class OnResume {
  kFree,   // any value
  kLive,   // any value; a running daemon applies it on reload
  kData,   // needs --allow-data-change
  kBatch,  // needs --allow-batch-change
  kModel,  // needs --allow-model-change
};

struct Config {
  RunConfig run;
  DatasetConfigs data;  // "train" is required
  FeedConfig feed;
  ModelConfig model;
  TaskConfig task;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  TrainConfig train;
  CheckpointConfig checkpoint;
  EvalConfig eval;
  MetricsConfig metrics;
  ControlConfig control;
  LogConfig log;

  bool operator==(const Config&) const = default;
};

// Datasets that training uses: train and, of a mixture or concat, its components.
std::vector<std::string> training_datasets(const Config& config);
// Those of them that hold samples: train, or its components.
std::vector<std::string> sampled_datasets(const Config& config);

// Of the images of data.train; datasets that training samples agree on it. Null: inputs are in [0, 1].
const Normalize* training_normalization(const Config& config);

}  // namespace stoker::config
