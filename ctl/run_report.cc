#include "ctl/run_report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "ctl/run_locator.h"
#include "ctl/status_format.h"
#include "ctl/text_format.h"
#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/readable_format.h"
#include "shared/base/utf8.h"
#include "shared/metrics/json_lines.h"
#include "shared/run/lineage.h"
#include "shared/view/curve_history.h"

namespace stoker::ctl {
namespace {

constexpr uint64_t kMaxResultBytes = 1 << 20;
constexpr size_t kMaxMetricName = 256;  // of a record

// Empty if the file does not exist, because no step was reported yet. Of more than 2 * kMaxRows records,
// every second, fourth, … and the last one: the file can be that of another user.
Result<std::vector<metrics::TrainMetrics>> read_train_rows(const std::string& path) {
  constexpr size_t kMaxRows = 100'000, kMaxMetricsOfRecord = 64;
  std::vector<metrics::TrainMetrics> rows;
  std::optional<metrics::TrainMetrics> omitted;  // since the last of `rows`
  uint64_t num_read = 0, every = 1;
  const auto add = [&](const metrics::MetricsRecord& record, uint64_t line) -> Status {
    auto row = metrics::train_metrics_from(record);
    if (!row.ok()) return row.status().with_context(path + ":" + std::to_string(line));
    std::erase_if(row->metrics, [](const auto& one) { return one.first.size() > kMaxMetricName; });
    row->metrics.resize(std::min(row->metrics.size(), kMaxMetricsOfRecord));
    if (omitted) row->checkpoint_stall_ms += omitted->checkpoint_stall_ms;
    omitted.reset();
    if (++num_read % every != 0) {
      omitted = *std::move(row);
      return {};
    }
    rows.push_back(*std::move(row));
    if (rows.size() < 2 * kMaxRows) return {};
    for (size_t i = 0; i < kMaxRows; ++i) {
      rows[2 * i + 1].checkpoint_stall_ms += rows[2 * i].checkpoint_stall_ms;
      rows[i] = std::move(rows[2 * i + 1]);
    }
    rows.resize(kMaxRows);
    every *= 2;
    return {};
  };
  const Status read = metrics::for_each_record(path, add);
  if (!read.ok() && read.code() != StatusCode::kNotFound) return read;
  if (omitted) rows.push_back(*std::move(omitted));
  return rows;
}

// File names of eval_result_path(), as opposed to outcomes.jsonl and best.json.
bool is_result_name(const std::string& name) {
  return name.starts_with("step-") && name.ends_with(".json");
}

}  // namespace

std::string MetricName::text() const {
  std::string words = metric;  // "bits_per_byte" becomes "bits/byte"
  if (const size_t per = words.find("_per_"); per != std::string::npos) words.replace(per, 5, "/");
  std::replace(words.begin(), words.end(), '_', ' ');
  return dataset + " " + words;
}

Result<std::vector<run::EvalResult>> read_evals(const run::RunLayout& layout,
                                                uint64_t* maybe_unread) {
  std::vector<run::EvalResult> evals;
  const auto names = list_directory(layout.eval_dir());
  if (!names.ok() && names.status().code() == StatusCode::kNotFound) return evals;
  if (!names.ok()) return names.status();
  STOKER_ASSIGN_OR_RETURN(const run::Lineage lineage, run::read_lineage(layout.lineage_file()));
  size_t num_read = 0;
  for (size_t i = names->size(); i > 0; --i) {
    const std::string& name = (*names)[i - 1];
    if (!is_result_name(name)) continue;
    if (num_read == run::kMaxListedResults) {
      if (maybe_unread != nullptr) ++*maybe_unread;
      continue;
    }
    ++num_read;
    const std::string path = join_path(layout.eval_dir(), name);
    STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxResultBytes));
    STOKER_ASSIGN_OR_RETURN(run::EvalResult result, run::parse_eval_result(text, path));
    const bool is_present = lineage.contains(result.step, result.manifest_sha256);
    if (run::keep_metrics_only(result) && is_present) evals.push_back(std::move(result));
  }
  std::sort(evals.begin(), evals.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return evals;
}

Result<RunHistory> read_history(const run::RunLayout& layout) {
  RunHistory history{.layout = layout,
                     .state = run::read_run_state(layout),
                     .summary = view::read_summary(layout, ""),
                     .train = {},
                     .evals = {},
                     .setting_changes = {}};
  STOKER_ASSIGN_OR_RETURN(history.train, read_train_rows(layout.train_metrics_file()));
  STOKER_ASSIGN_OR_RETURN(history.evals, read_evals(layout, &history.unread_evals));
  STOKER_ASSIGN_OR_RETURN(history.setting_changes,
                          run::read_setting_changes(layout.setting_changes_file()));
  if (auto table = eval_metrics::read_metric_table(layout.metric_table_file()); table.ok())
    history.metric_table = *std::move(table);
  if (const auto best = run::read_best(layout); best.ok())
    history.monitor = MetricName{best->dataset, best->metric};
  return history;
}

std::vector<MetricName> reported_metrics(const std::vector<run::EvalResult>& evals) {
  std::vector<MetricName> names;
  if (evals.empty() || evals.back().datasets.empty()) return names;
  const run::DatasetResult& first = evals.back().datasets.front();
  for (const auto& [name, value] : first.metrics) names.push_back({first.dataset, name});
  return names;
}

std::optional<double> find_value(const run::EvalResult& eval, const MetricName& metric) {
  for (const run::DatasetResult& dataset : eval.datasets) {
    if (dataset.dataset != metric.dataset) continue;
    for (const auto& [name, value] : dataset.metrics)
      if (name == metric.metric) return value;
  }
  return std::nullopt;
}

const run::EvalResult* find_best(const std::vector<run::EvalResult>& evals,
                                 const run::Monitor& monitor) {
  const run::EvalResult* best = nullptr;
  double best_value = std::nan("");
  for (const run::EvalResult& eval : evals) {
    const auto value = find_value(eval, {monitor.dataset, monitor.metric});
    if (!value.has_value() || !std::isfinite(*value)) continue;
    if (!monitor.is_better(*value, best_value)) continue;
    best = &eval;
    best_value = *value;
  }
  return best;
}

double trained_seconds(const RunHistory& history) {
  double sum = 0;
  uint64_t before = 0;
  std::optional<std::chrono::system_clock::time_point> time_before;
  for (const metrics::TrainMetrics& row : history.train) {
    const auto time = parse_iso8601(row.wall_time);
    const double wall = time && time_before
                            ? std::chrono::duration<double>(*time - *time_before).count()
                            : std::nan("");
    sum += view::trained_seconds(row.step - std::min(before, row.step), row.step_time_ms, wall);
    before = row.step;
    time_before = time;
  }
  return sum;
}

namespace {

constexpr size_t kTableRows = 10;
constexpr size_t kMaxMetrics = 2;
constexpr size_t kMaxSettingChanges = 10;
constexpr int kSmallPlotRows = 10;

bool is_evaluated(const RunHistory& history, uint64_t step) {
  return std::any_of(history.evals.begin(), history.evals.end(),
                     [step](const run::EvalResult& eval) { return eval.step == step; });
}

// The nearest index within `reach` of `target` whose step was evaluated; otherwise `target`.
size_t near_evaluated(const RunHistory& history, size_t target, size_t reach) {
  const size_t last = history.train.size() - 1;
  for (size_t away = 0; away <= reach; ++away) {
    if (target + away <= last && is_evaluated(history, history.train[target + away].step))
      return target + away;
    if (away <= target && is_evaluated(history, history.train[target - away].step))
      return target - away;
  }
  return target;
}

// Evenly spread indices of records, moved to a nearby evaluated step if there is one. Always
// includes the last record.
std::vector<size_t> select_rows(const RunHistory& history) {
  const size_t count = history.train.size();
  const size_t num_rows = std::min(kTableRows, count);
  std::vector<size_t> selected;
  for (size_t i = 1; i <= num_rows; ++i) {
    const size_t target = i * count / num_rows - 1;
    const size_t row =
        i == num_rows ? target : near_evaluated(history, target, count / num_rows / 2);
    if (selected.empty() || row > selected.back()) selected.push_back(row);
  }
  return selected;
}

TextTable empty_table(const std::vector<MetricName>& metrics) {
  std::vector<Column> columns{{.title = "step"}, {.title = "train\nloss"}};
  for (size_t i = 0; i < metrics.size(); ++i) {
    std::string title = metrics[i].text();
    // Only the first column contains the dataset name; all columns are of the same dataset.
    if (i > 0) title.erase(0, metrics[i].dataset.size() + 1);
    columns.push_back({.title = wrapped_title(printable(title)), .can_drop = i > 0});
  }
  columns.push_back({.title = "samples/s", .can_drop = true});
  columns.push_back({.title = "data wait\n(ms/step)", .can_drop = true});
  columns.push_back({.title = "checkpoint\nstall (ms)", .can_drop = true});
  return TextTable(std::move(columns));
}

// The newest evaluation of a step in (after, last].
const run::EvalResult* newest_eval(const RunHistory& history, uint64_t after, uint64_t last) {
  const run::EvalResult* newest = nullptr;
  for (const run::EvalResult& eval : history.evals)
    if (eval.step > after && eval.step <= last) newest = &eval;
  return newest;
}

// Table row for record `last`; covers everything since record `first`, inclusive.
std::vector<std::string> row_cells(const RunHistory& history,
                                   const std::vector<MetricName>& metrics, size_t first,
                                   size_t last) {
  const metrics::TrainMetrics& row = history.train[last];
  double samples_per_second = 0, wait_ms = 0, stall_ms = 0;
  for (size_t i = first; i <= last; ++i) {
    samples_per_second += history.train[i].samples_per_second;
    wait_ms += history.train[i].data_wait_ms;
    stall_ms += history.train[i].checkpoint_stall_ms;
  }
  const auto count = static_cast<double>(last - first + 1);
  std::vector<std::string> cells{format_count(row.step), format_value(row.loss)};
  // The last checkpoint can be of a step after the last reported one.
  const uint64_t until =
      last + 1 == history.train.size() ? std::numeric_limits<uint64_t>::max() : row.step;
  const auto* eval = newest_eval(history, first == 0 ? 0 : history.train[first - 1].step, until);
  for (const MetricName& metric : metrics) {
    const auto value = eval != nullptr ? find_value(*eval, metric) : std::nullopt;
    cells.push_back(value.has_value() ? format_value(*value) : "-");
  }
  cells.insert(cells.end(), {format_rate(samples_per_second / count),
                             format_milliseconds(wait_ms / count), format_milliseconds(stall_ms)});
  return cells;
}

// Of a run without best.json; empty: the summary has the best value.
std::string missing_best(const RunHistory& history, const std::vector<MetricName>& metrics) {
  if (metrics.empty()) {
    const auto is_evaluated = is_locked(history.layout.eval_lock_file());
    if (is_evaluated.ok() && *is_evaluated)
      return "no validation yet: the evaluator runs, and has not evaluated a checkpoint\n";
    return "no validation yet: stoker-eval --run-dir " + printable(history.layout.root()) +
           " --once\n";
  }
  if (history.summary.best) return "";
  const MetricName metric = history.monitor.value_or(metrics.front());
  const std::string name = printable(metric.text());
  const auto* const definition = history.metric_table.find(metric.metric);
  if (definition == nullptr)
    return "best " + name + ": not known, because " +
           printable(history.layout.metric_table_file()) + " does not have the metric\n";
  const run::EvalResult* const best =
      find_best(history.evals, {metric.dataset, metric.metric, definition->direction});
  if (best == nullptr) return "best " + name + ": no finite value\n";
  return "best " + name + " " + format_value(*find_value(*best, metric)) + " at step " +
         format_count(best->step) + "\n";
}

// "changed at step 1 200: optimizer.lr 3.0e-04 -> 1.0e-04", the newest ones.
std::string setting_change_lines(const std::vector<run::SettingChange>& changes) {
  const size_t hidden = changes.size() - std::min(changes.size(), kMaxSettingChanges);
  std::string lines;
  if (hidden > 0) lines = format_count(hidden) + " earlier changes of settings\n";
  for (size_t i = hidden; i < changes.size(); ++i)
    lines += "changed at step " + format_count(changes[i].step) + ": " + printable(changes[i].key) +
             " " + printable(changes[i].previous) + " -> " + printable(changes[i].current) + "\n";
  return lines;
}

Status no_metrics_error(const RunHistory& history) {
  return Status(
      StatusCode::kNotFound,
      history.layout.train_metrics_file() +
          ": no step has been reported yet (it is reported every metrics.log_every_steps steps); " +
          format_run_state(history.state) + "; its log: " + history.layout.trainer_log());
}

}  // namespace

Result<std::string> render_report(const RunHistory& history, const TextStyle& style) {
  if (history.train.empty()) return no_metrics_error(history);
  auto metrics = reported_metrics(history.evals);
  metrics.resize(std::min(metrics.size(), kMaxMetrics));
  TextTable table = empty_table(metrics);
  size_t first = 0;
  for (const size_t row : select_rows(history)) {
    table.add(row_cells(history, metrics, first, row));
    first = row + 1;
  }
  const metrics::TrainMetrics& last = history.train.back();
  std::string report =
      table.render(style) + "\n" + render_summary(history.summary, style) +
      missing_best(history, metrics) + "trained     " + format_count(last.samples_seen) +
      " samples in " + format_duration(trained_seconds(history)) + " of training, epoch " +
      format_count(last.epoch) + "\n" + setting_change_lines(history.setting_changes);
  // The report is still useful if all losses are NaN.
  const auto curves = loss_curves(history);
  return report + "\n" +
         (curves.ok() ? render_plot(*curves, "steps", kSmallPlotRows, style)
                      : "no plot: " + curves.status().message() + "\n");
}

Result<std::vector<Curve>> loss_curves(const RunHistory& history) {
  if (history.train.empty()) return no_metrics_error(history);
  Curve train{.name = "train loss", .kind = Curve::Kind::kLine, .points = {}};
  for (const metrics::TrainMetrics& row : history.train)
    train.points.emplace_back(static_cast<double>(row.step), row.loss);
  std::vector<Curve> curves{std::move(train)};
  if (const auto metrics = reported_metrics(history.evals); !metrics.empty()) {
    Curve val{.name = metrics.front().text(), .kind = Curve::Kind::kMarks, .points = {}};
    for (const run::EvalResult& eval : history.evals)
      if (const auto value = find_value(eval, metrics.front()); value.has_value())
        val.points.emplace_back(static_cast<double>(eval.step), *value);
    curves.push_back(std::move(val));
  }
  if (has_finite_point(curves)) return curves;
  return Status(StatusCode::kCorrupt, history.layout.train_metrics_file() + " has no finite loss");
}

Result<std::vector<Curve>> metric_curves(const RunHistory& history, const std::string& metric) {
  Curve train{.name = "train " + metric, .kind = Curve::Kind::kLine, .points = {}};
  std::map<std::string, Curve> curves;  // by dataset name
  std::set<std::string> available;
  for (const metrics::TrainMetrics& row : history.train) {
    for (const auto& [name, value] : row.metrics) {
      available.insert(name);
      if (name == metric) train.points.emplace_back(static_cast<double>(row.step), value);
    }
  }
  for (const run::EvalResult& eval : history.evals) {
    for (const run::DatasetResult& result : eval.datasets) {
      for (const auto& [name, value] : result.metrics) {
        available.insert(name);
        if (name != metric) continue;
        Curve& curve = curves[result.dataset];
        curve.name = MetricName{result.dataset, metric}.text();
        curve.kind = Curve::Kind::kMarks;
        curve.points.emplace_back(static_cast<double>(eval.step), value);
      }
    }
  }
  std::vector<Curve> list;
  if (!train.points.empty()) list.push_back(std::move(train));
  for (auto& [dataset, curve] : curves) list.push_back(std::move(curve));
  if (has_finite_point(list)) return list;
  std::string names;
  for (const std::string& name : available) names += (names.empty() ? "" : ", ") + name;
  return Status(StatusCode::kNotFound,
                printable(history.layout.root()) + ": no record has a finite value of '" +
                    printable(metric) + "'; " +
                    (names.empty() ? "no evaluation yet" : "available metrics: " + names));
}

}  // namespace stoker::ctl
