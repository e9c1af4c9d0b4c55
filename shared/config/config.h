// Config: all settings of stoker as plain structs, one per section, with their defaults. The
// descriptors of the settings are in settings_*.cc; config/stoker.yaml is generated from them.
//
// Threads: values.
// Errors:  none; load_config.h parses YAML into a Config and reports all errors together.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/config/dataset_config.h"
#include "shared/config/feed_config.h"
#include "shared/config/model_config.h"
#include "shared/config/run_config.h"
#include "shared/config/training_config.h"

namespace stoker::config {

// Which settings a resumed run may change.
enum class OnResume {
  kFree,   // any value
  kLive,   // any value; can change while the run trains (live_settings.h)
  kData,   // needs --allow-data-change
  kBatch,  // needs --allow-batch-change
  kModel,  // needs --allow-model-change
};

// The length of an epoch of data.train, and how far a run has come (epochs.h).
struct EpochLength {
  double steps = 1;   // per epoch
  uint64_t step = 0;  // of the run
  double epochs = 0;  // completed at this step

  bool operator==(const EpochLength&) const = default;
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
  DistributedConfig distributed;
  ClusterConfig cluster;
  CheckpointConfig checkpoint;
  EvalConfig eval;
  MetricsConfig metrics;
  WatchdogConfig watchdog;
  ControlConfig control;
  HttpConfig http;
  LogConfig log;

  // The settings that are configured in epochs, by key: one number, or one per item of a list. Their
  // values are in steps, and 0 until resolve_epochs().
  std::map<std::string, std::vector<double>, std::less<>> epochs;
  // Of the run that this is in effect for; nullopt: not known, or the data has no epochs.
  std::optional<EpochLength> epoch_length;

  bool operator==(const Config&) const = default;
};

// Whether `text` is "host:port" with a port from 1 to 65535: an address of config.cluster.
bool is_task_address(std::string_view text);

// Names of the datasets that training uses: train and, for a mixture or concat, its components.
std::vector<std::string> training_datasets(const Config& config);
// Those that contain samples: train, or its components; see sampled_datasets() of all datasets.
std::vector<std::string> sampled_datasets(const Config& config);

// The normalization of the images of data.train, which all sampled datasets share. Null: inputs are
// in [0, 1].
const Normalize* training_normalization(const Config& config);

// The tokenizer of the text of data.train, which all datasets with text share. Null: none.
const TokenizerConfig* training_tokenizer(const Config& config);

// The sampled dataset that is a stream: train, or a dataset of its mixture. Null: all have an index.
const DatasetConfigs::value_type* streamed_dataset(const Config& config);
const StreamConfig* training_stream(const Config& config);  // of this dataset; null: none

}  // namespace stoker::config
