// MetricTable: the metrics that the evaluation of a run can report. All that ranks, compares or shows
// a metric reads its direction, unit and meaning here, and nowhere else.
//
// kBuiltinMetrics has those of stoker's tasks; a model of the user adds its own (read_model_metrics). stokerd
// writes the table of a run to RunLayout::metric_table_file(), and all other programs read that.
//
// Threads: values and pure functions.
// Errors:  kCorrupt: not JSON in this format, or a row is invalid; the message has path and row.
//          kNotFound, kIoError.
// Format:  {"metrics": [{"name": "auroc", "direction": "maximize", "unit": "fraction",
//          "aggregation": "dataset", "help": "…"}, …]}
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"

namespace stoker::eval_metrics {

enum class Direction { kMinimize, kMaximize };  // which values are better
std::string_view to_string(Direction direction);

// How the value of a dataset follows from its samples.
enum class Aggregation {
  kMean,     // sum over samples, labels or tokens divided by their number
  kDataset,  // from all of them together: no mean of the values of parts
};
std::string_view to_string(Aggregation aggregation);

struct MetricDefinition {
  std::string name;
  Direction direction = Direction::kMinimize;
  std::string unit;  // "nats", "fraction"; empty: none
  Aggregation aggregation = Aggregation::kMean;
  std::string help;  // one sentence, in Markdown

  bool operator==(const MetricDefinition&) const = default;
};

// A metric of stoker's own tasks.
struct BuiltinMetric {
  std::string_view name;  // of kTopKAccuracy, K stands for eval.top_k
  Direction direction;
  std::string_view unit;
  Aggregation aggregation;
  std::string_view tasks;  // values of task.name
  std::string_view help;
};
// In the order in which evaluations report them.
std::span<const BuiltinMetric> builtin_metrics();
inline constexpr std::string_view kTopKAccuracy = "topK_accuracy";
inline constexpr std::string_view kEntityPrefix = "entity_";  // of those of task.tags
inline constexpr std::string_view kBitsPerByte = "bits_per_byte";
inline constexpr std::string_view kBitsPerToken = "bits_per_token";

class MetricTable {
 public:
  MetricTable() = default;
  explicit MetricTable(std::vector<MetricDefinition> rows) : rows_(std::move(rows)) {}

  const std::vector<MetricDefinition>& rows() const { return rows_; }
  // Null: the run has no metric of this name.
  const MetricDefinition* find(std::string_view name) const;
  std::vector<std::string> names() const;

  bool operator==(const MetricTable&) const = default;

 private:
  std::vector<MetricDefinition> rows_;
};

std::string to_json(const MetricTable& table);
Result<MetricTable> parse_metric_table(std::string_view json, const std::string& path_in_messages);
Result<MetricTable> read_metric_table(const std::string& path);

// "PATH/model.metrics.json" for "PATH/model.so".
std::string plugin_metrics_path(const std::string& plugin_path);
// The metrics that a model of the user lists in this file, a plugin's or graph.json, below `metrics`; empty: there is
// no such file or list. kCorrupt also: a metric has the name of another field of a record.
Result<MetricTable> read_model_metrics(const std::string& path);

}  // namespace stoker::eval_metrics
