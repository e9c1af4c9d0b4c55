// Config: every setting of stoker as plain structs; config/stoker.yaml is the manual with the same
// names and defaults. Each section has a header of its own; include that one where it is enough.
//
// Threads: values.
// Errors:  none here; load_config.h turns YAML into these and reports everything wrong at once.
//
// A comment that begins with kinds names those that read the field; it is refused for the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/config/checkpoint_config.h"
#include "shared/config/dataset_config.h"
#include "shared/config/eval_config.h"
#include "shared/config/feed_config.h"
#include "shared/config/metrics_config.h"
#include "shared/config/model_config.h"
#include "shared/config/optimizer_config.h"
#include "shared/config/task_config.h"
#include "shared/config/train_config.h"

namespace stoker::config {

struct RunConfig {
  std::string dir = "runs/demo";  // run directory; relative to the working directory
  uint64_t seed = 1;              // of initialisation, order of samples and augmentation
  bool deterministic = false;     // refuse nondeterministic kernels (always so on the CPU)

  bool operator==(const RunConfig&) const = default;
};

struct ControlConfig {
  std::string socket =
      "auto";             // auto = run/control.sock, or in systemd's RuntimeDirectory; off = none
  std::string http = "";  // not served yet; must be empty
  std::vector<std::string> operators;  // users that may operate, beside the owner and root

  bool operator==(const ControlConfig&) const = default;
};

struct LogConfig {
  std::string level = "info";  // debug | info | warn | error

  bool operator==(const LogConfig&) const = default;
};

struct Config {
  RunConfig run;
  DatasetConfigs data;  // "train" is required
  FeedConfig feed;
  ModelConfig model;
  TaskConfig task;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  TrainConfig train;
  CheckpointConfig checkpoint;
  EvalConfig eval;
  MetricsConfig metrics;
  ControlConfig control;
  LogConfig log;

  bool operator==(const Config&) const = default;
};

}  // namespace stoker::config
