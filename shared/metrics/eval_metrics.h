// EvalMetrics: what one evaluation found on one set; a line of run/metrics/eval.jsonl.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/status.h"
#include "shared/metrics/metrics_record.h"

namespace stoker::metrics {

struct EvalMetrics {
  uint64_t step = 0;
  std::string dataset;
  std::vector<std::pair<std::string, double>>
      metrics;  // in order; the first is the one that "best" goes by
  uint64_t samples = 0;
  std::string manifest_sha256;  // of the checkpoint
  double seconds = 0;           // by the clock
  std::string wall;             // ISO 8601, UTC
};

// A metric must not be named like another field (step, set, samples, manifest_sha256, seconds,
// wall).
MetricsRecord to_record(const EvalMetrics& record);
// Every other field is a metric. kCorrupt: a field is missing or has the wrong type; names it.
Result<EvalMetrics> eval_metrics_from(const MetricsRecord& record);

}  // namespace stoker::metrics
