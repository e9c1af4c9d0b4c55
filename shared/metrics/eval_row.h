// EvalRow: what one evaluation found on one set; a line of run/metrics/eval.jsonl.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/status.h"
#include "shared/metrics/row.h"

namespace stoker::metrics {

struct EvalRow {
  uint64_t step = 0;
  std::string set;
  std::vector<std::pair<std::string, double>>
      metrics;  // in order; the first is the one that "best" goes by
  uint64_t samples = 0;
  std::string manifest_sha256;  // of the checkpoint
  double seconds = 0;           // by the clock
  std::string wall;             // ISO 8601, UTC
};

// A metric must not be named like another field (step, set, samples, manifest_sha256, seconds,
// wall).
Row to_row(const EvalRow& row);
// Every other field is a metric. kCorrupt: a field is missing or has the wrong type; names it.
Result<EvalRow> eval_row_of(const Row& row);

}  // namespace stoker::metrics
