#include "ctl/run_history.h"

#include <algorithm>
#include <cmath>

#include "shared/base/file.h"
#include "shared/metrics/json_lines.h"

namespace stoker::ctl {
namespace {

constexpr uint64_t kMaxResultBytes = 1 << 20;

// None where the file is missing: nothing was reported yet.
Result<std::vector<metrics::TrainMetrics>> read_train_rows(const std::string& path) {
  std::vector<metrics::TrainMetrics> rows;
  const auto read = metrics::read_records(path);
  if (!read.ok() && read.status().code() == StatusCode::kNotFound) return rows;
  if (!read.ok()) return read.status();
  rows.reserve(read->records.size());
  for (const metrics::MetricsRecord& row : read->records) {
    auto one = metrics::train_metrics_from(row);
    if (!one.ok()) return one.status().with_context(path + ":" + std::to_string(rows.size() + 1));
    rows.push_back(*std::move(one));
  }
  return rows;
}

// The files that eval_result_path() names; the ledger and best.json are others.
bool is_result_name(const std::string& name) {
  return name.starts_with("step-") && name.ends_with(".json");
}

}  // namespace

std::string MetricName::text() const {
  std::string words = metric;  // "bits_per_byte" is "bits/byte"
  if (const size_t per = words.find("_per_"); per != std::string::npos) words.replace(per, 5, "/");
  std::replace(words.begin(), words.end(), '_', ' ');
  return dataset + " " + words;
}

Result<std::vector<run::EvalResult>> read_evals(const run::RunLayout& layout) {
  std::vector<run::EvalResult> evals;
  const auto names = list_directory(layout.eval_dir());
  if (!names.ok() && names.status().code() == StatusCode::kNotFound) return evals;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (!is_result_name(name)) continue;
    const std::string path = join_path(layout.eval_dir(), name);
    STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxResultBytes));
    STOKER_ASSIGN_OR_RETURN(run::EvalResult result, run::parse_eval_result(text, path));
    evals.push_back(std::move(result));
  }
  std::sort(evals.begin(), evals.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return evals;
}

Result<RunHistory> read_history(const run::RunLayout& layout) {
  RunHistory history{
      .layout = layout, .state = run::read_run_state(layout), .train = {}, .evals = {}};
  STOKER_ASSIGN_OR_RETURN(history.train, read_train_rows(layout.train_metrics_file()));
  STOKER_ASSIGN_OR_RETURN(history.evals, read_evals(layout));
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
                                 const MetricName& metric) {
  const run::EvalResult* best = nullptr;
  double min = 0;
  for (const run::EvalResult& eval : evals) {
    const auto value = find_value(eval, metric);
    if (!value.has_value() || !std::isfinite(*value)) continue;
    if (best != nullptr && *value >= min) continue;
    best = &eval;
    min = *value;
  }
  return best;
}

}  // namespace stoker::ctl
