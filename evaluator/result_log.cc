#include "evaluator/result_log.h"

#include <cmath>
#include <map>
#include <utility>

#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/metrics/eval_row.h"
#include "shared/metrics/event_file.h"
#include "shared/metrics/json_lines.h"

namespace stoker::evaluator {
namespace {

constexpr uint64_t kMaxResultBytes = 64ull << 20;

std::string row_key(uint64_t step, const std::string& set, const std::string& manifest_sha256) {
  return std::to_string(step) + " " + set + " " + manifest_sha256;
}

metrics::EvalRow row_of(const run::EvalResult& result, const run::SetResult& set) {
  metrics::EvalRow row;
  row.step = result.step;
  row.set = set.set;
  row.metrics = set.metrics;
  row.samples = set.samples;
  row.manifest_sha256 = result.manifest_sha256;
  row.seconds = result.seconds;
  row.wall = result.created;
  return row;
}

}  // namespace

struct ResultLog::Sinks {
  std::unique_ptr<metrics::JsonLinesFile> rows;
  std::string tensorboard;  // where the event files go; empty: none are written
  std::map<std::string, std::unique_ptr<metrics::EventFile>>
      events;  // by set, from its first row on
};

ResultLog::ResultLog(FileSystem& files, const run::RunLayout& layout, run::Goal goal)
    : files_(files), layout_(layout), goal_(std::move(goal)), sinks_(std::make_unique<Sinks>()) {}
ResultLog::~ResultLog() = default;

Result<std::unique_ptr<ResultLog>> ResultLog::open(FileSystem& files, const run::RunLayout& layout,
                                                   run::Goal goal, bool tensorboard) {
  std::unique_ptr<ResultLog> log(new ResultLog(files, layout, std::move(goal)));
  STOKER_RETURN_IF_ERROR(make_directories(files, layout.metrics()));
  STOKER_ASSIGN_OR_RETURN(log->sinks_->rows,
                          metrics::JsonLinesFile::open(files, layout.eval_rows()));
  STOKER_ASSIGN_OR_RETURN(const metrics::RowsRead read, metrics::read_rows(layout.eval_rows()));
  for (const metrics::Row& row : read.rows) {
    const auto known = metrics::eval_row_of(row);
    if (!known.ok()) continue;
    log->rows_.insert(row_key(known->step, known->set, known->manifest_sha256));
    log->note_value(known->step, known->set, known->metrics);
  }
  if (tensorboard) log->sinks_->tensorboard = join_path(layout.tb(), "eval");
  auto best = run::read_best(layout.best_file());
  if (best.ok()) {
    log->best_ = *std::move(best);
  } else if (best.status().code() != Code::kNotFound) {
    log_warn("best.json not understood", {{"reason", best.status().to_string()}});
  }
  return log;
}

std::optional<run::EvalResult> ResultLog::maybe_recorded(uint64_t step,
                                                         const std::string& manifest_sha256) const {
  const std::string path = run::eval_result_path(layout_.eval(), step);
  const auto text = read_file(path, kMaxResultBytes);
  if (!text.ok()) return std::nullopt;
  auto result = run::parse_eval_result(*text, path);
  if (!result.ok() || result->manifest_sha256 != manifest_sha256) return std::nullopt;
  return *std::move(result);
}

Status ResultLog::record(const run::EvalResult& result) {
  STOKER_RETURN_IF_ERROR(run::write_eval_result(files_, layout_.eval(), result));
  STOKER_RETURN_IF_ERROR(update_best(result));
  for (const run::SetResult& set : result.sets) {
    const std::string key = row_key(result.step, set.set, result.manifest_sha256);
    if (rows_.contains(key)) continue;
    // TensorBoard is a view: trouble with it must not hold up what counts.
    if (const Status status = draw(result.step, set); !status.ok())
      log_warn("TensorBoard file not written", {{"reason", status.to_string()}});
    STOKER_RETURN_IF_ERROR(sinks_->rows->append(metrics::to_row(row_of(result, set))));
    STOKER_RETURN_IF_ERROR(sinks_->rows->sync());
    rows_.insert(key);
    note_value(result.step, set.set, set.metrics);
    std::string summary;
    for (const auto& [name, value] : set.metrics)
      summary += (summary.empty() ? "" : " ") + name + "=" + std::to_string(value);
    log_info("evaluated", {{"step", result.step},
                           {"set", set.set},
                           {"samples", set.samples},
                           {"metrics", summary},
                           {"seconds", result.seconds},
                           {"best", best_ && best_->step == result.step}});
  }
  return {};
}

void ResultLog::note_value(uint64_t step, const std::string& set,
                           const run::MetricValues& metrics) {
  if (set != goal_.set) return;
  for (const auto& [name, value] : metrics)
    if (name == goal_.metric) values_[step] = value;
}

std::vector<run::GoalPoint> ResultLog::history(uint64_t step) const {
  std::vector<run::GoalPoint> points;
  for (auto it = values_.begin(); it != values_.end() && it->first <= step; ++it)
    points.push_back({it->first, it->second});
  return points;
}

// A run of TensorBoard's per set, with the trainer's names, so that both losses share a chart.
Status ResultLog::draw(uint64_t step, const run::SetResult& set) {
  if (sinks_->tensorboard.empty()) return {};
  auto& events = sinks_->events[set.set];
  if (!events) {
    STOKER_ASSIGN_OR_RETURN(
        events, metrics::EventFile::create(files_, system_clock(),
                                           join_path(sinks_->tensorboard, set.set), std::nullopt));
  }
  for (const auto& [name, value] : set.metrics) events->add_scalar(name, step, value);
  return events->flush();
}

Status ResultLog::update_best(const run::EvalResult& result) {
  STOKER_ASSIGN_OR_RETURN(const double value, run::value_of(result, goal_));
  if (!std::isfinite(value)) return {};
  // Of equals the earlier one stays, so that a restart cannot move the best about.
  if (best_ && best_->metric == goal_.metric && best_->set == goal_.set &&
      !goal_.is_better(value, best_->value))
    return {};
  run::Best better{goal_.set, goal_.metric, value, result.step, result.manifest_sha256};
  STOKER_RETURN_IF_ERROR(write_file_atomically(files_, layout_.best_file(), run::to_json(better)));
  best_ = std::move(better);
  return {};
}

}  // namespace stoker::evaluator
