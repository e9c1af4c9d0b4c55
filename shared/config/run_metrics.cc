#include "shared/config/run_metrics.h"

#include <sstream>
#include <utility>
#include <vector>

#include "shared/base/utf8.h"
#include "shared/config/config_errors.h"

namespace stoker::config {
namespace {

using eval_metrics::BuiltinMetric;
using eval_metrics::MetricDefinition;
using eval_metrics::MetricTable;

bool is_metric_of(const BuiltinMetric& metric, std::string_view task) {
  std::istringstream tasks{std::string(metric.tasks)};
  for (std::string name; tasks >> name;)
    if (name == task) return true;
  return false;
}

// Empty: this run has no such metric.
std::string name_in_run(const BuiltinMetric& metric, const Config& config,
                        const std::optional<EvaluatedOutputs>& maybe_outputs) {
  const std::string name(metric.name);
  if (metric.name == eval_metrics::kTopKAccuracy) {
    const EvalConfig& eval = config.eval;
    if (!eval.top_k) return {};
    const uint64_t classes = maybe_outputs ? maybe_outputs->num_classes : 0;
    if (classes > 0 && static_cast<uint64_t>(*eval.top_k) >= classes) return {};
    return "top" + std::to_string(*eval.top_k) + "_accuracy";
  }
  if (metric.name.starts_with(eval_metrics::kEntityPrefix)) {
    const auto* const task = std::get_if<SequenceLabelingTask>(&config.task.task);
    if (task == nullptr || task->tags.empty()) return {};
  }
  const bool is_of_bytes = metric.name == eval_metrics::kBitsPerByte;
  const bool is_of_tokens = metric.name == eval_metrics::kBitsPerToken;
  if (!maybe_outputs || (!is_of_bytes && !is_of_tokens)) return name;
  return is_of_bytes == maybe_outputs->tokens_are_bytes ? name : std::string();
}

// The file in which a model that evaluates itself lists its metrics; empty: it does not.
std::string metrics_path(const Config& config) {
  if (config.task.name() != TaskName::kCustom) return {};
  if (const auto* const plugin = std::get_if<PluginConfig>(&config.model.arch))
    return eval_metrics::plugin_metrics_path(plugin->path);
  const auto* const exported = std::get_if<ExportedConfig>(&config.model.arch);
  return exported == nullptr ? std::string() : exported->path + "/graph.json";
}

Status check_monitor(const MetricTable& table, const char* key, const std::string& monitor) {
  const std::string error = monitor_error(table, monitor);
  if (error.empty()) return {};
  return Status(StatusCode::kInvalidArgument, std::string(key) + ": " + error);
}

}  // namespace

MetricTable task_metrics(const Config& config,
                         const std::optional<EvaluatedOutputs>& maybe_outputs) {
  std::vector<MetricDefinition> rows;
  for (const BuiltinMetric& metric : eval_metrics::builtin_metrics()) {
    if (!is_metric_of(metric, to_string(config.task.name()))) continue;
    const std::string name = name_in_run(metric, config, maybe_outputs);
    if (!name.empty())
      rows.push_back({.name = name,
                      .direction = metric.direction,
                      .unit = std::string(metric.unit),
                      .aggregation = metric.aggregation,
                      .help = std::string(metric.help)});
  }
  return MetricTable(std::move(rows));
}

Result<MetricTable> resolve_metrics(const Config& config,
                                    const std::optional<EvaluatedOutputs>& maybe_outputs) {
  MetricTable table = task_metrics(config, maybe_outputs);
  if (const std::string path = metrics_path(config); !path.empty()) {
    const auto listed = eval_metrics::read_model_metrics(path);
    if (!listed.ok())
      return Status(StatusCode::kInvalidArgument, "model.path: " + listed.status().message());
    std::vector<MetricDefinition> rows = table.rows();
    rows.insert(rows.end(), listed->rows().begin(), listed->rows().end());
    table = MetricTable(std::move(rows));
  }
  STOKER_RETURN_IF_ERROR(check_monitor(table, "eval.monitor", config.eval.monitor));
  for (const std::string& monitor : config.checkpoint.monitor)
    STOKER_RETURN_IF_ERROR(check_monitor(table, "checkpoint.monitor", monitor));
  return table;
}

std::string monitor_error(const MetricTable& table, const std::string& monitor) {
  const size_t slash = monitor.find('/');
  const std::string name = slash == std::string::npos ? monitor : monitor.substr(slash + 1);
  if (table.find(name) != nullptr) return {};
  return quoted(name) + " is not a metric of this task" + did_you_mean(name, table.names()) +
         "; choose one of " + join(table.names(), ", ");
}

}  // namespace stoker::config
