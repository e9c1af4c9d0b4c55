#include "evaluator/result_log.h"

#include <algorithm>
#include <map>
#include <utility>

#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/checkpoint/store.h"
#include "shared/metrics/eval_row.h"
#include "shared/metrics/event_file.h"
#include "shared/metrics/json_lines.h"

namespace stoker::evaluator {
namespace {

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
    : files_(files),
      layout_(layout),
      goal_(goal),
      values_(std::move(goal)),
      sinks_(std::make_unique<Sinks>()) {}
ResultLog::~ResultLog() = default;

// ---- Opening

Result<std::unique_ptr<ResultLog>> ResultLog::open(FileSystem& files, const run::RunLayout& layout,
                                                   run::Goal goal, bool tensorboard) {
  std::unique_ptr<ResultLog> log(new ResultLog(files, layout, std::move(goal)));
  STOKER_RETURN_IF_ERROR(make_directories(files, layout.metrics()));
  STOKER_ASSIGN_OR_RETURN(log->sinks_->rows,
                          metrics::JsonLinesFile::open(files, layout.eval_rows()));
  if (tensorboard) log->sinks_->tensorboard = join_path(layout.tb(), "eval");
  log->remember_best();
  STOKER_RETURN_IF_ERROR(log->read_rows());
  STOKER_RETURN_IF_ERROR(log->write_best());
  STOKER_RETURN_IF_ERROR(log->complete_results());
  return log;
}

void ResultLog::remember_best() {
  const auto best = run::read_best(layout_.best_file());
  if (best.ok()) {
    best_ = *best;
    values_.remember(*best);
  } else if (best.status().code() != Code::kNotFound) {
    log_warn("best result file invalid", {{"path", layout_.best_file()},
                                          {"error", best.status().to_string()},
                                          {"action", "rebuilt from the results"}});
  }
}

Status ResultLog::read_rows() {
  STOKER_ASSIGN_OR_RETURN(const metrics::RowsRead read, metrics::read_rows(layout_.eval_rows()));
  for (const metrics::Row& row : read.rows) {
    const auto known = metrics::eval_row_of(row);
    if (!known.ok()) continue;
    rows_.insert(row_key(known->step, known->set, known->manifest_sha256));
    values_.add(known->step, known->manifest_sha256, known->set, known->metrics);
  }
  return {};
}

Status ResultLog::complete_results() {
  STOKER_ASSIGN_OR_RETURN(const auto names, list_directory(layout_.eval()));
  for (const std::string& name : names) {
    if (!name.ends_with(".json")) continue;
    const auto step = checkpoint::CheckpointStore::maybe_step_of(name.substr(0, name.size() - 5));
    if (!step) continue;
    const std::string path = join_path(layout_.eval(), name);
    STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, run::kMaxEvalResultBytes));
    const auto result = run::parse_eval_result(text, path);
    if (!result.ok()) {
      log_warn("result file invalid", {{"path", path}, {"error", result.status().message()}});
      continue;
    }
    found_.push_back({result->step, result->manifest_sha256});
    if (!has_all_rows(*result)) STOKER_RETURN_IF_ERROR(complete(*result));
  }
  return {};
}

bool ResultLog::has_all_rows(const run::EvalResult& result) const {
  return std::ranges::all_of(result.sets, [&](const run::SetResult& set) {
    return rows_.contains(row_key(result.step, set.set, result.manifest_sha256));
  });
}

std::optional<run::EvalResult> ResultLog::maybe_recorded(uint64_t step,
                                                         const std::string& manifest_sha256) const {
  return run::maybe_eval_result(layout_.eval(), step, manifest_sha256);
}

// ---- Recording

Status ResultLog::record(const run::EvalResult& result, const std::vector<View>& views) {
  STOKER_RETURN_IF_ERROR(run::value_of(result, goal_).status());
  // Before the result, so that what a crash leaves is of a checkpoint that comes again.
  for (const run::SetResult& set : result.sets) {
    const Status written = write_views(files_, layout_, result.step, set.set, views);
    if (!written.ok()) log_warn("artifact not written", {{"error", written.to_string()}});
  }
  STOKER_RETURN_IF_ERROR(run::write_eval_result(files_, layout_.eval(), result));
  return complete(result);
}

Status ResultLog::complete(const run::EvalResult& result) {
  for (const run::SetResult& set : result.sets)
    values_.add(result.step, result.manifest_sha256, set.set, set.metrics);
  STOKER_RETURN_IF_ERROR(write_best());
  for (const run::SetResult& set : result.sets) {
    const std::string key = row_key(result.step, set.set, result.manifest_sha256);
    if (rows_.contains(key)) continue;
    // TensorBoard is a view: trouble with it must not hold up what counts.
    if (const Status status = draw(result.step, set); !status.ok())
      log_warn("tensorboard write failed", {{"error", status.to_string()}});
    STOKER_RETURN_IF_ERROR(add_row(result, set));
    rows_.insert(key);
  }
  return {};
}

Status ResultLog::add_row(const run::EvalResult& result, const run::SetResult& set) {
  STOKER_RETURN_IF_ERROR(sinks_->rows->append(metrics::to_row(row_of(result, set))));
  STOKER_RETURN_IF_ERROR(sinks_->rows->sync());
  std::string summary;
  for (const auto& [name, value] : set.metrics)
    summary += (summary.empty() ? "" : " ") + name + "=" + std::to_string(value);
  log_info("evaluation finished", {{"step", result.step},
                                   {"dataset", set.set},
                                   {"samples", set.samples},
                                   {"metrics", summary},
                                   {"duration_seconds", result.seconds},
                                   {"is_best", best_ && best_->step == result.step}});
  return {};
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
  for (const View& view : read_views(layout_, step, set.set)) {
    if (view.is_picture())
      events->add_image(view.tag(), step, view.bytes);
    else
      events->add_text(view.tag(), step, view.bytes);
  }
  return events->flush();
}

Status ResultLog::write_best() {
  const auto best = values_.maybe_best();
  if (!best || best == best_) return {};
  STOKER_RETURN_IF_ERROR(write_file_atomically(files_, layout_.best_file(), run::to_json(*best)));
  best_ = best;
  return {};
}

}  // namespace stoker::evaluator
