// The lines of the metrics files: MetricsRecord, and what is one: TrainMetrics and EvalMetrics.
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

#include "shared/base/status.h"

namespace stoker::metrics {

// Text that other programs read as UTF-8 must be UTF-8: JSON readers and TensorBoard refuse the whole
// record otherwise. `text` with each byte that is not part of a valid character replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

// MetricsRecord: one line of a metrics file: names and values, in the order in which they were added.
//
// Format:  a JSON object on one line. Doubles in the shortest text that reads back as the same
//          double; NaN and the infinities, which JSON does not know, as null. docs/metrics.md lists
//          the fields of each file.
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
  std::optional<uint64_t> find_count(
      std::string_view name) const;  // a whole number that is not negative
  // Any number; null reads as NaN, as it was written.
  std::optional<double> find_number(std::string_view name) const;
  std::optional<std::string> find_text(std::string_view name) const;

  bool operator==(const MetricsRecord&) const = default;

 private:
  std::vector<std::pair<std::string, Value>> fields_;
};

std::string to_json(const MetricsRecord& record);  // without the newline
// Values that are lists or objects are not what we write: kCorrupt, as is anything that is not one
// JSON object.
Result<MetricsRecord> parse_record(std::string_view line);

// TrainMetrics: one reported step of training; a line of run/metrics/train.jsonl.
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

// EvalMetrics: what one evaluation found on one set; a line of run/metrics/eval.jsonl.
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
