#include "daemon/ctl/run_report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <vector>

#include "daemon/ctl/run_history.h"

namespace stoker::ctl {
namespace {

constexpr size_t kTableRows = 10;

using Cells = std::vector<std::string>;

struct Metric {
  std::string set;
  std::string name;
};

// Of the first set that the evaluator reports: the first is what "best" goes by.
std::vector<Metric> shown_metrics(const RunHistory& history) {
  std::vector<Metric> metrics;
  if (history.evals.empty() || history.evals.back().sets.empty()) return metrics;
  const run::SetResult& first = history.evals.back().sets.front();
  for (const auto& [name, value] : first.metrics)
    if (metrics.size() < 2) metrics.push_back({first.set, name});
  return metrics;
}

std::optional<double> maybe_value(const run::EvalResult& eval, const Metric& metric) {
  for (const run::SetResult& set : eval.sets) {
    if (set.set != metric.set) continue;
    for (const auto& [name, value] : set.metrics)
      if (name == metric.name) return value;
  }
  return std::nullopt;
}

// Indices of rows, evenly spread; where an evaluated step is near, that one.
std::vector<size_t> choose_rows(const RunHistory& history) {
  const auto& rows = history.train;
  const size_t wanted = std::min(kTableRows, rows.size());
  std::vector<size_t> chosen;
  for (size_t i = 1; i <= wanted; ++i) {
    const size_t target = i * rows.size() / wanted - 1;
    const size_t reach = i == wanted ? 0 : rows.size() / wanted / 2;
    size_t best = target;
    size_t distance = reach + 1;
    for (size_t at = target - std::min(target, reach);
         at <= std::min(target + reach, rows.size() - 1); ++at) {
      const size_t away = at > target ? at - target : target - at;
      if (away >= distance || history.find_eval(rows[at].step) == nullptr) continue;
      best = at;
      distance = away;
    }
    if (chosen.empty() || best > chosen.back()) chosen.push_back(best);
  }
  return chosen;
}

std::string words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

Cells header_cells(const std::vector<Metric>& metrics) {
  Cells cells{"step", "train loss"};
  for (size_t i = 0; i < metrics.size(); ++i)
    cells.push_back((i == 0 ? metrics[i].set + " " : "") + words(metrics[i].name));
  cells.insert(cells.end(), {"samples/s", "feed wait ms", "ckpt stall ms"});
  return cells;
}

// Row `last` with what happened in (`before`, last].
Cells row_cells(const RunHistory& history, const std::vector<Metric>& metrics, size_t first,
                size_t last) {
  const metrics::TrainRow& row = history.train[last];
  double samples_per_s = 0, wait_ms = 0, stall_ms = 0;
  for (size_t i = first; i <= last; ++i) {
    samples_per_s += history.train[i].samples_per_s;
    wait_ms += history.train[i].feed_wait_ms;
    stall_ms += history.train[i].checkpoint_stall_ms;
  }
  const auto count = static_cast<double>(last - first + 1);
  Cells cells{format_count(row.step), format_number(row.loss, 5)};
  const run::EvalResult* eval = history.find_eval(row.step);
  for (const Metric& metric : metrics) {
    const auto value = eval != nullptr ? maybe_value(*eval, metric) : std::nullopt;
    cells.push_back(value.has_value() ? format_number(*value, 5) : "-");
  }
  cells.insert(cells.end(), {format_number(samples_per_s / count, 4),
                             format_number(wait_ms / count, 3), format_number(stall_ms, 3)});
  return cells;
}

std::vector<size_t> column_widths(const std::vector<Cells>& table, int columns) {
  std::vector<size_t> widths(table.front().size(), 0);
  for (const Cells& cells : table)
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  // A narrow terminal loses columns from the right, never the losses.
  const auto total = [&] {
    size_t sum = 0;
    for (const size_t width : widths) sum += width + 2;
    return sum;
  };
  while (widths.size() > 3 && total() > static_cast<size_t>(std::max(columns, 0)))
    widths.pop_back();
  return widths;
}

std::string render_table(const std::vector<Cells>& table, const ReportStyle& style) {
  const auto widths = column_widths(table, style.columns);
  std::string out;
  for (size_t row = 0; row < table.size(); ++row) {
    std::string line;
    for (size_t i = 0; i < widths.size(); ++i)
      line += std::string(widths[i] - table[row][i].size() + 2, ' ') + table[row][i];
    if (row == 0 && style.colour) line = "\x1b[1m" + line + "\x1b[0m";
    out += line + "\n";
    if (row > 0) continue;
    for (const size_t width : widths) {
      out += "  ";
      for (size_t i = 0; i < width; ++i) out += style.unicode ? "─" : "-";
    }
    out += "\n";
  }
  return out;
}

std::string duration(double seconds) {
  const auto whole = static_cast<uint64_t>(std::llround(std::clamp(seconds, 0.0, 1e12)));
  if (whole < 100) return format_number(seconds, 3) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

// Time in training, without pauses and without what happened between a crash and its restart.
double trained_seconds(const RunHistory& history) {
  double ms = 0;
  uint64_t before = 0;
  for (const metrics::TrainRow& row : history.train) {
    ms += static_cast<double>(row.step - std::min(before, row.step)) * row.step_ms;
    before = row.step;
  }
  return std::isfinite(ms) ? ms / 1000 : 0;
}

std::string best_line(const RunHistory& history, const std::vector<Metric>& metrics) {
  if (metrics.empty())
    return "no validation yet: run stoker-eval --run-dir " + history.run_dir + " --once\n";
  const run::EvalResult* best = nullptr;
  double least = 0;
  for (const run::EvalResult& eval : history.evals) {
    const auto value = maybe_value(eval, metrics.front());
    if (!value.has_value() || !std::isfinite(*value) || (best != nullptr && *value >= least))
      continue;
    best = &eval;
    least = *value;
  }
  const std::string name = metrics.front().set + " " + words(metrics.front().name);
  if (best == nullptr) return "no " + name + " is a number\n";
  return "best " + name + " " + format_number(least, 5) + " at step " + format_count(best->step) +
         "\n";
}

std::string state_line(const RunHistory& history) {
  const uint64_t step = history.train.back().step;
  switch (history.state.kind) {
    case run::RunState::Kind::kRunning:
      return "training goes on at step " + format_count(step) + "\n";
    case run::RunState::Kind::kEnded:
      return history.state.end->state + " at step " + format_count(history.state.end->step) + ": " +
             history.state.end->reason + "\n";
    case run::RunState::Kind::kDead:
      return "stokerd died after step " + format_count(step) +
             "; starting it again goes on from the newest checkpoint\n";
    case run::RunState::Kind::kAbsent:
      break;
  }
  return "";
}

}  // namespace

Result<std::string> render_report(const std::string& run_dir, const ReportStyle& style) {
  STOKER_ASSIGN_OR_RETURN(const RunHistory history, read_history(run_dir));
  const auto metrics = shown_metrics(history);
  std::vector<Cells> table{header_cells(metrics)};
  size_t first = 0;
  for (const size_t row : choose_rows(history)) {
    table.push_back(row_cells(history, metrics, first, row));
    first = row + 1;
  }
  const metrics::TrainRow& last = history.train.back();
  return render_table(table, style) + "\n" + best_line(history, metrics) +
         format_count(last.samples) + " samples in " + duration(trained_seconds(history)) +
         ", epoch " + std::to_string(last.epoch + 1) + "\n" + state_line(history);
}

Result<std::string> render_loss_plot(const std::string& run_dir, const ReportStyle& style) {
  STOKER_ASSIGN_OR_RETURN(const RunHistory history, read_history(run_dir));
  Curve train{.name = "train loss", .kind = Curve::Kind::kLine, .points = {}};
  for (const metrics::TrainRow& row : history.train)
    train.points.emplace_back(static_cast<double>(row.step), row.loss);
  std::vector<Curve> curves{std::move(train)};
  const auto metrics = shown_metrics(history);
  if (!metrics.empty()) {
    Curve valid{.name = metrics.front().set + " " + words(metrics.front().name),
                .kind = Curve::Kind::kMarks,
                .points = {}};
    for (const run::EvalResult& eval : history.evals)
      if (const auto value = maybe_value(eval, metrics.front()); value.has_value())
        valid.points.emplace_back(static_cast<double>(eval.step), *value);
    curves.push_back(std::move(valid));
  }
  std::string plot = render_plot(curves, "steps", style);
  if (plot.empty())
    return Status(Code::kCorrupt, run_dir + ": no reported loss is a number; nothing to plot");
  return plot;
}

}  // namespace stoker::ctl
