// MetricsRecord, TrainMetrics and EvalMetrics: the lines of the metrics files.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shared/base/resource_use.h"
#include "shared/base/status.h"

namespace stoker::metrics {

// MetricsRecord: one line of a metrics file, as names and values in the order in which they were
// added.
//
// Format: a JSON object on one line. A double is written as the shortest text that parses to the
//         same value. NaN and the infinities, which JSON cannot represent, are written as null.
//         docs/metrics.md lists the fields of each file.
class MetricsRecord {
 public:
  using Value = std::variant<std::nullptr_t, bool, uint64_t, int64_t, double, std::string>;

  MetricsRecord& add(std::string_view name, uint64_t value) { return add_value(name, value); }
  MetricsRecord& add(std::string_view name, double value) { return add_value(name, value); }
  MetricsRecord& add(std::string_view name, std::string_view value) {
    return add_value(name, std::string(value));
  }
  MetricsRecord& add_value(std::string_view name, Value value);

  const std::vector<std::pair<std::string, Value>>& fields() const { return fields_; }
  const Value* find(std::string_view name) const;  // nullptr: no such field
  // Only an integer that is not negative.
  std::optional<uint64_t> find_count(std::string_view name) const;
  // Any number; null, the encoding of NaN, is read as NaN.
  std::optional<double> find_number(std::string_view name) const;
  std::optional<std::string> find_text(std::string_view name) const;

  bool operator==(const MetricsRecord&) const = default;

 private:
  std::vector<std::pair<std::string, Value>> fields_;
};

std::string to_json(const MetricsRecord& record);  // without the newline
// kCorrupt: not a single JSON object, or a value is a list or an object, which records never
// contain.
Result<MetricsRecord> parse_record(std::string_view line);

// TrainMetrics: a training report of one step, a line of run/metrics/train.jsonl.
struct TrainMetrics {
  // Deterministic: identical for an interrupted and an uninterrupted run.
  uint64_t step = 0;
  uint64_t epoch = 0;
  // Mean over the steps since the last record.
  double loss = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::pair<std::string, double>> metrics;  // training metrics, over the same steps
  double lr = 0;
  double grad_norm = 0;       // of the last step, before clipping
  uint64_t samples_seen = 0;  // number trained on since the start of the run
  // Total number of steps without a parameter update. Empty if steps cannot be skipped.
  std::optional<uint64_t> maybe_skipped_steps;
  std::optional<double> maybe_loss_scale;  // with precision fp16
  // Depends on timing.
  double samples_per_second = 0;
  double step_time_ms = 0;  // mean
  double data_wait_ms = 0;  // mean time per step that training waited for a batch
  // Mean per step, in a group: this rank exchanges with the others, and waits for them.
  std::optional<double> maybe_exchange_ms;
  // Total time since the last record that training was blocked by snapshots.
  double checkpoint_stall_ms = 0;
  uint64_t degraded = 0;  // 1: the last checkpoint could not be written
  ResourceUse resources;  // what is known of the first kRecordedResources
  std::string wall_time;  // ISO 8601, UTC
};

MetricsRecord to_record(const TrainMetrics& metrics);
// The numbers between `loss` and `lr` are the training metrics. kCorrupt: a field is missing or
// has the wrong type; names the field.
Result<TrainMetrics> train_metrics_from(const MetricsRecord& metrics);

// EvalMetrics: the result of one evaluation on one dataset, a line of run/metrics/eval.jsonl.
struct EvalMetrics {
  uint64_t step = 0;
  std::string dataset;
  // In order; the first one is the default monitor.
  std::vector<std::pair<std::string, double>> metrics;
  uint64_t num_samples = 0;
  uint64_t num_quarantined = 0;  // samples that were not evaluated; absent if 0
  std::string manifest_sha256;   // of the checkpoint
  double duration_seconds = 0;   // wall-clock duration
  ResourceUse resources;         // as in TrainMetrics, of the evaluator
  std::string wall_time;         // ISO 8601, UTC
};

// A metric must not have the name of another field (step, dataset, num_samples,
// num_quarantined, manifest_sha256, duration_seconds, wall_time, resources).
MetricsRecord to_record(const EvalMetrics& record);
// Every other field is a metric. kCorrupt: a field is missing or has the wrong type; names the
// field.
Result<EvalMetrics> eval_metrics_from(const MetricsRecord& record);

}  // namespace stoker::metrics
