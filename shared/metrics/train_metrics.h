// TrainMetrics: one reported step of training; a line of run/metrics/train.jsonl.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "shared/base/status.h"
#include "shared/metrics/metrics_record.h"

namespace stoker::metrics {

struct TrainMetrics {
  // What the run decided: the same for an interrupted run and one that was not.
  uint64_t step = 0;
  uint64_t epoch = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();  // mean over the steps since the last row
  double lr = 0;
  double grad_norm = 0;  // of the last step, before clipping
  uint64_t samples = 0;  // trained on since the start of the run
  // Steps of the run so far that changed nothing; where such steps are possible.
  std::optional<uint64_t> maybe_skipped_steps;
  std::optional<double> maybe_loss_scale;  // with precision fp16
  // What a clock decided.
  double samples_per_s = 0;
  double step_ms = 0;              // mean
  double feed_wait_ms = 0;         // mean per step: training stood still for want of a batch
  double checkpoint_stall_ms = 0;  // in all since the last row: training stood still for a snapshot
  uint64_t degraded = 0;           // 1: the last checkpoint could not be written
  std::string wall;                // ISO 8601, UTC
};

MetricsRecord to_record(const TrainMetrics& metrics);
// kCorrupt: a field is missing or has the wrong type; names it.
Result<TrainMetrics> train_metrics_from(const MetricsRecord& metrics);

}  // namespace stoker::metrics
