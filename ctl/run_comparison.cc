#include "ctl/run_comparison.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "ctl/live_status.h"
#include "ctl/run_report.h"
#include "ctl/status_format.h"
#include "ctl/text_format.h"
#include "shared/base/readable_format.h"
#include "shared/base/utf8.h"
#include "shared/config/load_config.h"
#include "shared/view/run_view.h"

namespace stoker::ctl {
namespace {

struct ComparedRun {
  RunHistory history;
  view::RunSummary summary;  // with what its stokerd says
  std::map<std::string, std::string> settings;
  double value = std::numeric_limits<double>::quiet_NaN();
  uint64_t step = 0;
};

// By key. Of a configuration that this release cannot read, none.
std::map<std::string, std::string> settings_of(const run::RunLayout& layout) {
  std::map<std::string, std::string> settings;
  const auto config = config::load_config(layout.config_file(), {});
  if (!config.ok()) return settings;
  for (const config::Setting& setting : config::all_settings(*config))
    settings.emplace(setting.key, setting.public_value());
  return settings;
}

// "3.0e-04" as people write it: "0.0003".
std::string setting_text(const std::string& value) {
  double number = 0;
  const char* const end = value.data() + value.size();
  const bool is_exponent = value.find("e-") != value.npos || value.find("e+") != value.npos;
  if (!is_exponent || std::from_chars(value.data(), end, number).ptr != end)
    return printable(value);
  return format_setting(number);
}

// Sorted; run.dir says nothing that the name does not.
std::vector<std::string> differing_keys(const std::vector<ComparedRun>& runs) {
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, size_t> counts;
  for (const ComparedRun& run : runs)
    for (const auto& [key, value] : run.settings) {
      values[key].insert(value);
      ++counts[key];
    }
  std::vector<std::string> keys;
  for (const auto& [key, found] : values)
    if (key != "run.dir" && (found.size() > 1 || counts[key] < runs.size())) keys.push_back(key);
  return keys;
}

// The metric of the best checkpoint of the first run that has one, else the first one evaluated; nullopt: none is.
std::optional<MetricName> compared_metric(const std::vector<ComparedRun>& runs) {
  for (const ComparedRun& run : runs)
    if (run.history.monitor) return run.history.monitor;
  for (const ComparedRun& run : runs)
    if (const auto metrics = reported_metrics(run.history.evals); !metrics.empty())
      return metrics.front();
  return std::nullopt;
}

// The best value, or of a metric whose direction is not known the last.
void add_value(ComparedRun& run, const std::optional<MetricName>& metric) {
  if (!metric) {
    if (run.history.train.empty()) return;
    run.value = run.history.train.back().loss;
    run.step = run.history.train.back().step;
    return;
  }
  const auto* const definition = run.history.metric_table.find(metric->metric);
  const run::EvalResult* best =
      definition != nullptr
          ? find_best(run.history.evals, {metric->dataset, metric->metric, definition->direction})
      : run.history.evals.empty() ? nullptr
                                  : &run.history.evals.back();
  if (best == nullptr) return;
  run.value = find_value(*best, *metric).value_or(run.value);
  run.step = best->step;
}

bool is_maximized(const std::vector<ComparedRun>& runs, const std::optional<MetricName>& metric) {
  return metric && std::ranges::any_of(runs, [&](const ComparedRun& run) {
           const auto* const definition = run.history.metric_table.find(metric->metric);
           return definition != nullptr &&
                  definition->direction == eval_metrics::Direction::kMaximize;
         });
}

Result<std::vector<ComparedRun>> read_runs(const std::vector<run::RunLayout>& layouts) {
  std::vector<view::FoundRun> found;
  for (const run::RunLayout& layout : layouts)
    found.push_back({.name = view::RunView(layout).name(), .layout = layout});
  std::vector<view::RunSummary> summaries = read_summaries(found);
  std::vector<ComparedRun> runs;
  for (size_t i = 0; i < layouts.size(); ++i) {
    STOKER_ASSIGN_OR_RETURN(RunHistory history, read_history(layouts[i]));
    runs.push_back({.history = std::move(history),
                    .summary = std::move(summaries[i]),
                    .settings = settings_of(layouts[i])});
  }
  return runs;
}

}  // namespace

Result<std::string> render_comparison(const std::vector<run::RunLayout>& layouts,
                                      const TextStyle& style) {
  STOKER_ASSIGN_OR_RETURN(std::vector<ComparedRun> runs, read_runs(layouts));
  const auto metric = compared_metric(runs);
  for (ComparedRun& run : runs) add_value(run, metric);
  const double sign = is_maximized(runs, metric) ? -1 : 1;
  std::ranges::stable_sort(runs, [sign](const ComparedRun& a, const ComparedRun& b) {
    if (std::isnan(a.value) || std::isnan(b.value))
      return !std::isnan(a.value) && std::isnan(b.value);
    return sign * a.value < sign * b.value;
  });
  const std::vector<std::string> keys = differing_keys(runs);
  std::vector<Column> columns{{.title = "run", .left = true, .can_cut = true}};
  for (const std::string& key : keys)
    columns.push_back({.title = printable(key), .can_drop = true});
  columns.push_back({.title = wrapped_title(metric ? printable(metric->text()) : "train loss")});
  columns.insert(columns.end(), {{.title = "step"},
                                 {.title = "training\ntime", .can_drop = true},
                                 {.title = "state", .left = true}});
  TextTable table(std::move(columns));
  for (const ComparedRun& run : runs) {
    std::vector<std::string> cells{printable(run.summary.name)};
    for (const std::string& key : keys) {
      const auto found = run.settings.find(key);
      cells.push_back(found == run.settings.end() ? "-" : setting_text(found->second));
    }
    const bool has_value = !std::isnan(run.value);
    cells.insert(
        cells.end(),
        {has_value ? format_value(run.value) : "-", has_value ? format_count(run.step) : "-",
         format_duration(trained_seconds(run.history)), colored_state(run.summary, style)});
    table.add(std::move(cells));
  }
  return table.render(style);
}

}  // namespace stoker::ctl
