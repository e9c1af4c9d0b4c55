// EvalResult and BestCheckpoint: the result of one evaluation of one checkpoint, stored in
// run/eval/step-N.json, and the best result so far.
//
// A result contains the SHA-256 of the manifest. It can therefore never be mistaken for the result
// of another checkpoint, even one that a later run saved at the same step.
//
// Threads: values; the functions from one thread.
// Errors:  kCorrupt: not JSON in this format; kNotFound, kIoError.
// Crash:   written to a temporary file, synced and renamed, so a file is either complete or absent.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/resource_use.h"
#include "shared/base/status.h"
#include "shared/config/run_config.h"
#include "shared/eval_metrics/eval_metrics.h"
#include "shared/eval_metrics/metric_table.h"
#include "shared/run/run_layout.h"

namespace stoker::run {

class Lineage;

using eval_metrics::MetricValues;

struct DatasetResult {
  std::string dataset;
  uint64_t samples = 0;  // evaluated
  MetricValues metrics;
  // Only for classification; empty above kMaxPerClassMetrics, kMaxConfusionClasses or kMaxPrCurves
  // classes.
  std::vector<eval_metrics::PerClassMetrics> classes = {};
  eval_metrics::ConfusionMatrix confusion_matrix = {};
  std::vector<eval_metrics::PrCurve> pr_curves = {};
  // Samples that were not evaluated, because they crash the worker process that reads them. Stored
  // if not 0.
  uint64_t quarantined = 0;
};

struct EvalResult {
  uint64_t step = 0;
  std::string manifest_sha256;
  std::vector<DatasetResult> datasets;
  double seconds = 0;
  ResourceUse resources = {};  // of the evaluator and its workers, during the evaluation
  std::string created;         // ISO 8601, human-readable
  // eval.use_ema of this evaluation, which can differ from that of the run (stoker-eval --set). Empty: of
  // weights alone, or by an earlier release.
  std::optional<bool> maybe_use_ema = {};
};

std::string to_json(const EvalResult& result);
Result<EvalResult> parse_eval_result(std::string_view json, const std::string& path_in_messages);

Status write_eval_result(FileSystem& files, const std::string& eval_dir, const EvalResult& result);
std::string eval_result_path(const std::string& eval_dir, uint64_t step);

inline constexpr uint64_t kMaxEvalResultBytes = 64ull << 20;  // larger files are rejected

// What a list of results keeps of each: neither classes nor matrices nor curves. False: its names of datasets and metrics
// take more than 64 KiB, as none that an evaluator writes; another user's file can have any number.
bool keep_metrics_only(EvalResult& result);
bool has_few_names(const EvalResult& result);
// Of the newest results that are read for a list: a file can have many names, as hard links.
inline constexpr size_t kMaxListedResults = 10'000;

// The evaluation result of exactly this checkpoint; empty if it cannot be read.
std::optional<EvalResult> find_eval_result(const std::string& eval_dir, uint64_t step,
                                           const std::string& manifest_sha256);

// The last step whose result is of an ancestor of the present state; nullopt: there is none.
std::optional<uint64_t> newest_evaluated_step(const RunLayout& layout);

// A metric value and the checkpoint it belongs to.
struct BestValue {
  double value = 0;
  uint64_t step = 0;
  std::string manifest_sha256;

  bool operator==(const BestValue&) const = default;
};

// The best result so far by eval.monitor, and its history. All of it can be recomputed from
// metrics/eval.jsonl.
struct BestCheckpoint {
  std::string dataset;
  std::string metric;
  double value = 0;
  uint64_t step = 0;
  std::string manifest_sha256;
  std::vector<BestValue> history = {};  // successive best values; the last one is the current best
  std::map<std::string, BestValue> metrics = {};  // best value per "DATASET/METRIC"

  bool operator==(const BestCheckpoint&) const = default;
};

// What of `best` is of ancestors of the present state: if the run has left the branch of the best one, the last one of
// the history that is. nullopt: nothing is.
std::optional<BestCheckpoint> of_present_branch(BestCheckpoint best, const Lineage& lineage);

inline constexpr uint64_t kMaxBestBytes = 1 << 20;
std::string to_json(const BestCheckpoint& best);
Result<BestCheckpoint> parse_best(std::string_view json, const std::string& path_in_messages);
// Reads the file, and returns what is of the present branch. kNotFound before its first evaluation.
Result<BestCheckpoint> read_best(const RunLayout& layout);

// The metric that decides which checkpoint is better (eval.monitor).
struct Monitor {
  std::string dataset;
  std::string metric;
  eval_metrics::Direction direction = eval_metrics::Direction::kMinimize;

  // True if `value` is better than `than` by more than `min_delta`. NaN is never better, and any
  // number is better than NaN.
  bool is_better(double value, double than, double min_delta = 0) const;
  // The value as a score where lower is better.
  double score(double value) const;
  std::string to_text() const { return dataset + "/" + metric; }
};

// The values of the monitored metric by step, of ancestors of the present state. Results that cannot be read, or do not
// have the metric, are left out. Parses a file again only if it, or the metric, has changed.
class EvaluatedValues {
 public:
  std::map<uint64_t, double> read(const RunLayout& layout, const Monitor& monitor);

 private:
  struct File {
    std::string stamp;
    std::string manifest_sha256;
    std::optional<double> maybe_value;
  };
  std::string metric_;  // of the values
  std::map<uint64_t, File> files_;
};

// From eval.monitor: "METRIC" (of the first dataset) or "DATASET/METRIC". kInvalidArgument: the run
// has no such metric.
Result<Monitor> make_monitor(const config::EvalConfig& config,
                             const eval_metrics::MetricTable& table);
// The same for `metric`, the value of the setting `key`, instead of eval.monitor.
Result<Monitor> make_monitor(const config::EvalConfig& config,
                             const eval_metrics::MetricTable& table, const std::string& key,
                             const std::string& metric);

// kInvalidArgument: the result has no such metric; names the existing ones.
Result<double> monitored_value(const EvalResult& result, const Monitor& monitor);

}  // namespace stoker::run
