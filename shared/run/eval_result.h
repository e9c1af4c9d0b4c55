// EvalResult and BestCheckpoint: what one evaluation of one checkpoint found, as run/eval/step-N.json holds
// it.
//
// The manifest's SHA-256 is in it, so that a result can never be taken for another checkpoint's,
// not even for one that a later run saved at the same step.
//
// Threads: values; the functions from one thread.
// Errors:  kCorrupt: not the JSON that is written here; kNotFound, kIoError.
// Crash:   written to a temporary file, synced and renamed: a result is there as a whole or not at
//          all.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/config/run_config.h"
#include "shared/eval_metrics/eval_metrics.h"

namespace stoker::run {

using eval_metrics::MetricValues;

struct DatasetResult {
  std::string dataset;
  uint64_t samples = 0;
  MetricValues metrics;
  std::vector<eval_metrics::PerClassMetrics> classes =
      {};  // of classification, as far as it keeps them
  eval_metrics::ConfusionMatrix confusion_matrix = {};  // the same
};

struct EvalResult {
  uint64_t step = 0;
  std::string manifest_sha256;
  std::vector<DatasetResult> datasets;
  double seconds = 0;
  std::string created;  // ISO 8601, for people
};

std::string to_json(const EvalResult& result);
Result<EvalResult> parse_eval_result(std::string_view json, const std::string& path_in_messages);

Status write_eval_result(FileSystem& files, const std::string& eval_dir, const EvalResult& result);
std::string eval_result_path(const std::string& eval_dir, uint64_t step);

inline constexpr uint64_t kMaxEvalResultBytes = 64ull << 20;  // larger is no such file
// What the evaluator found of this very checkpoint; nothing where that cannot be read.
std::optional<EvalResult> find_eval_result(const std::string& eval_dir, uint64_t step,
                                           const std::string& manifest_sha256);

// One value of one metric, and which checkpoint it is of.
struct BestValue {
  double value = 0;
  uint64_t step = 0;
  std::string manifest_sha256;

  bool operator==(const BestValue&) const = default;
};

// The best result so far by the goal (eval.monitor), and how it came to be. Everything in it follows
// from metrics/eval.jsonl, so that it can be made anew.
struct BestCheckpoint {
  std::string dataset;
  std::string metric;
  double value = 0;
  uint64_t step = 0;
  std::string manifest_sha256;
  std::vector<BestValue> history = {};            // each was the best once; the last is this one
  std::map<std::string, BestValue> metrics = {};  // the best by each "SET/METRIC"

  bool operator==(const BestCheckpoint&) const = default;
};

std::string to_json(const BestCheckpoint& best);
Result<BestCheckpoint> parse_best(std::string_view json, const std::string& path_in_messages);
// From the file; kNotFound before the first evaluation.
Result<BestCheckpoint> read_best(const std::string& path);

// The one number of an evaluation that says which checkpoint is better (eval.monitor).
struct Monitor {
  std::string dataset;
  std::string metric;

  // Accuracies and the like; of losses and errors lower is better.
  bool higher_is_better() const;
  // By more than `min_delta`. What is not a number is never better, and anything is better than it.
  bool is_better(double value, double than, double min_delta = 0) const;
  std::string to_text() const { return dataset + "/" + metric; }
};

// eval.monitor, "METRIC" (of the first dataset) or "DATASET/METRIC".
Monitor make_monitor(const config::EvalConfig& config);
// The same of another `metric` than eval.monitor.
Monitor make_monitor(const config::EvalConfig& config, const std::string& metric);

// kInvalidArgument: the result has no such metric; names those that it has.
Result<double> monitored_value(const EvalResult& result, const Monitor& monitor);

}  // namespace stoker::run
