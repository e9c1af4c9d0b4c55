#include "evaluator/result_recorder.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "shared/base/clock.h"
#include "shared/base/file_stamp.h"
#include "shared/base/log.h"
#include "shared/checkpoint/store.h"
#include "shared/metrics/event_file.h"
#include "shared/metrics/json_lines.h"
#include "shared/metrics/metrics_record.h"

namespace stoker::evaluator {
namespace {

// Of one evaluation: a requested one of the same checkpoint has another creation time.
std::string record_key(uint64_t step, const std::string& dataset,
                       const std::string& manifest_sha256, const std::string& created) {
  return std::to_string(step) + " " + dataset + " " + manifest_sha256 + " " + created;
}

// "maximize, fraction: scikit-learn's …"
std::string describe(const eval_metrics::MetricDefinition* maybe_metric) {
  if (maybe_metric == nullptr) return {};
  std::string text(to_string(maybe_metric->direction));
  if (!maybe_metric->unit.empty()) text += ", " + maybe_metric->unit;
  return maybe_metric->help.empty() ? text : text + ": " + maybe_metric->help;
}

metrics::EvalMetrics to_eval_metrics(const run::EvalResult& result,
                                     const run::DatasetResult& dataset) {
  metrics::EvalMetrics record;
  record.step = result.step;
  record.dataset = dataset.dataset;
  record.metrics = dataset.metrics;
  record.num_samples = dataset.samples;
  record.num_quarantined = dataset.quarantined;
  record.manifest_sha256 = result.manifest_sha256;
  record.duration_seconds = result.seconds;
  record.resources = result.resources;
  record.wall_time = result.created;
  return record;
}

}  // namespace

struct ResultRecorder::Sinks {
  std::unique_ptr<metrics::JsonLinesFile> rows;
  std::string tensorboard;  // directory of the event files; empty: none
  // By dataset; created with its first record.
  std::map<std::string, std::unique_ptr<metrics::EventFile>> events;
  std::set<std::string> described;  // DATASET/METRIC whose description is in an event file
};

ResultRecorder::ResultRecorder(FileSystem& files, const run::RunLayout& layout,
                               run::Monitor monitor, eval_metrics::MetricTable table)
    : files_(files),
      layout_(layout),
      monitor_(monitor),
      table_(table),
      values_(std::move(monitor), std::move(table)),
      sinks_(std::make_unique<Sinks>()) {}
ResultRecorder::~ResultRecorder() = default;

// ---- Open

Result<std::unique_ptr<ResultRecorder>> ResultRecorder::open(FileSystem& files,
                                                             const run::RunLayout& layout,
                                                             run::Monitor monitor,
                                                             eval_metrics::MetricTable table,
                                                             bool tensorboard) {
  std::unique_ptr<ResultRecorder> log(
      new ResultRecorder(files, layout, std::move(monitor), std::move(table)));
  STOKER_RETURN_IF_ERROR(make_directories(files, layout.metrics_dir()));
  STOKER_ASSIGN_OR_RETURN(log->sinks_->rows,
                          metrics::JsonLinesFile::open(files, layout.eval_metrics_file()));
  if (tensorboard) log->sinks_->tensorboard = join_path(layout.tensorboard_dir(), "eval");
  STOKER_RETURN_IF_ERROR(log->update_lineage().status());
  log->restore_best();
  STOKER_RETURN_IF_ERROR(log->read_records());
  log->restore_values();
  STOKER_RETURN_IF_ERROR(log->write_best());
  STOKER_RETURN_IF_ERROR(log->add_missing_results());
  return log;
}

Result<bool> ResultRecorder::update_lineage() {
  const std::string stamp = file_stamp(layout_.lineage_file());
  if (stamp == lineage_stamp_) return false;
  STOKER_ASSIGN_OR_RETURN(run::Lineage now, run::read_lineage(layout_.lineage_file()));
  const run::Lineage before = std::exchange(lineage_, std::move(now));
  const bool has_changed = std::ranges::any_of(rows_, [&](const auto& row) {
    return before.contains(row.step, row.manifest_sha256) !=
           lineage_.contains(row.step, row.manifest_sha256);
  });
  if (has_changed) {
    restore_values();
    sinks_->events.clear();  // the next ones drop the points of the branch
    STOKER_RETURN_IF_ERROR(write_best());
  }
  lineage_stamp_ = stamp;
  return has_changed;
}

void ResultRecorder::restore_best() {
  const std::string path = layout_.best_file();
  const auto text = read_file(path, run::kMaxBestBytes);
  if (text.status().code() == StatusCode::kNotFound) return;
  auto best = text.ok() ? run::parse_best(*text, path) : text.status();
  if (best.ok()) {
    best_ = *std::move(best);
  } else {
    log_warn("best result file invalid", {{"path", path},
                                          {"error", best.status().to_string()},
                                          {"action", "rebuilt from the results"}});
  }
}

Status ResultRecorder::read_records() {
  return metrics::for_each_record(
      layout_.eval_metrics_file(), [this](const metrics::MetricsRecord& record, uint64_t) {
        const auto parsed = metrics::eval_metrics_from(record);
        if (!parsed.ok()) return Status();
        records_.insert(
            record_key(parsed->step, parsed->dataset, parsed->manifest_sha256, parsed->wall_time));
        rows_.push_back(*parsed);
        return Status();
      });
}

// Also from best.json, in case records are lost.
void ResultRecorder::restore_values() {
  values_.clear();
  const auto known = best_ ? run::of_present_branch(*best_, lineage_) : std::nullopt;
  if (known) values_.restore(*known);
  for (const metrics::EvalMetrics& row : rows_)
    if (lineage_.contains(row.step, row.manifest_sha256))
      values_.add(row.step, row.manifest_sha256, row.dataset, row.metrics);
}

Status ResultRecorder::add_missing_results() {
  STOKER_ASSIGN_OR_RETURN(const auto names, list_directory(layout_.eval_dir()));
  for (const std::string& name : names) {
    if (!name.ends_with(".json")) continue;
    const auto step =
        checkpoint::CheckpointStore::parse_checkpoint_name(name.substr(0, name.size() - 5));
    if (!step) continue;
    const std::string path = join_path(layout_.eval_dir(), name);
    STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, run::kMaxEvalResultBytes));
    const auto result = run::parse_eval_result(text, path);
    if (!result.ok()) {
      log_warn("result file invalid", {{"path", path}, {"error", result.status().message()}});
      continue;
    }
    found_.push_back({result->step, result->manifest_sha256});
    if (!has_all_records(*result)) STOKER_RETURN_IF_ERROR(add_missing_records(*result));
  }
  return {};
}

bool ResultRecorder::has_all_records(const run::EvalResult& result) const {
  return std::ranges::all_of(result.datasets, [&](const run::DatasetResult& dataset) {
    return records_.contains(
        record_key(result.step, dataset.dataset, result.manifest_sha256, result.created));
  });
}

std::optional<run::EvalResult> ResultRecorder::find_recorded(
    uint64_t step, const std::string& manifest_sha256) const {
  return run::find_eval_result(layout_.eval_dir(), step, manifest_sha256);
}

// ---- Record

Status ResultRecorder::record(const run::EvalResult& result,
                              const std::vector<Artifact>& artifacts) {
  STOKER_RETURN_IF_ERROR(run::monitored_value(result, monitor_).status());
  // Its line can follow it.
  lineage_.add_found({result.step, result.manifest_sha256});
  // Artifacts come before the result file: after a crash in between, the checkpoint is evaluated
  // again.
  for (const run::DatasetResult& dataset : result.datasets) {
    const Status written =
        write_artifacts(files_, layout_, result.step, dataset.dataset, artifacts);
    if (!written.ok()) log_warn("artifact not written", {{"error", written.to_string()}});
  }
  STOKER_RETURN_IF_ERROR(run::write_eval_result(files_, layout_.eval_dir(), result));
  return add_missing_records(result);
}

Status ResultRecorder::add_missing_records(const run::EvalResult& result) {
  const bool is_of_branch = lineage_.contains(result.step, result.manifest_sha256);
  if (is_of_branch)
    for (const run::DatasetResult& dataset : result.datasets)
      values_.add(result.step, result.manifest_sha256, dataset.dataset, dataset.metrics);
  STOKER_RETURN_IF_ERROR(write_best());
  for (const run::DatasetResult& dataset : result.datasets) {
    const std::string key =
        record_key(result.step, dataset.dataset, result.manifest_sha256, result.created);
    if (records_.contains(key)) continue;
    // A TensorBoard error must not block the recording of results.
    const Status shown = is_of_branch ? write_tensorboard(result.step, dataset) : Status();
    if (!shown.ok()) log_warn("tensorboard write failed", {{"error", shown.to_string()}});
    STOKER_RETURN_IF_ERROR(add_record(result, dataset));
    rows_.push_back(to_eval_metrics(result, dataset));
    records_.insert(key);
  }
  return {};
}

Status ResultRecorder::add_record(const run::EvalResult& result,
                                  const run::DatasetResult& dataset) {
  STOKER_RETURN_IF_ERROR(
      sinks_->rows->append(metrics::to_record(to_eval_metrics(result, dataset))));
  STOKER_RETURN_IF_ERROR(sinks_->rows->sync());
  std::vector<std::string> names;
  for (const auto& [name, value] : dataset.metrics) names.push_back("metric." + name);
  std::vector<Field> metrics;
  for (size_t i = 0; i < names.size(); ++i)
    metrics.emplace_back(names[i], dataset.metrics[i].second);
  log_info("evaluation finished",
           {{"step", result.step},
            {"dataset", dataset.dataset},
            {"samples", dataset.samples},
            {"duration_seconds", result.seconds},
            {"is_best", best_ && best_->manifest_sha256 == result.manifest_sha256}},
           metrics);
  return {};
}

// One TensorBoard run per dataset, with the tags of the trainer, so that both losses share a chart.
Status ResultRecorder::write_tensorboard(uint64_t step, const run::DatasetResult& dataset) {
  if (sinks_->tensorboard.empty()) return {};
  auto& events = sinks_->events[dataset.dataset];
  if (!events) {
    STOKER_ASSIGN_OR_RETURN(events, create_event_file(dataset.dataset));
  }
  add_events(*events, step, dataset);
  return events->flush();
}

void ResultRecorder::add_events(metrics::EventFile& events, uint64_t step,
                                const run::DatasetResult& dataset) {
  for (const auto& [name, value] : dataset.metrics) {
    const bool is_first = sinks_->described.insert(dataset.dataset + "/" + name).second;
    events.add_scalar(name, step, value, is_first ? describe(table_.find(name)) : std::string());
  }
  for (const eval_metrics::PrCurve& curve : dataset.pr_curves)
    events.add_pr_curve("pr_curves/" + curve.name, step, curve.true_positives,
                        curve.false_positives);
  for (const Artifact& view : read_artifacts(layout_, step, dataset.dataset)) {
    if (view.is_image())
      events.add_image(view.tag(), step, view.bytes);
    else
      events.add_text(view.tag(), step, view.bytes);
  }
}

// TensorBoard drops the later points of earlier files, so those of the present branch are added again.
Result<std::unique_ptr<metrics::EventFile>> ResultRecorder::create_event_file(
    const std::string& dataset) {
  const uint64_t after_step = last_unchanged_step();
  STOKER_ASSIGN_OR_RETURN(
      auto events, metrics::EventFile::create(files_, system_clock(),
                                              join_path(sinks_->tensorboard, dataset), after_step));
  std::map<uint64_t, const metrics::EvalMetrics*> later;  // the last record of each step
  for (const metrics::EvalMetrics& row : rows_)
    if (row.dataset == dataset && row.step > after_step &&
        lineage_.contains(row.step, row.manifest_sha256))
      later[row.step] = &row;
  for (const auto& [step, row] : later) {
    run::DatasetResult shown{.dataset = dataset, .metrics = row->metrics};
    if (const auto result = find_recorded(step, row->manifest_sha256))
      for (const run::DatasetResult& each : result->datasets)
        if (each.dataset == dataset) shown.pr_curves = each.pr_curves;
    add_events(*events, step, shown);
  }
  return events;
}

// Up to which TensorBoard has points of the present branch only.
uint64_t ResultRecorder::last_unchanged_step() const {
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  uint64_t last = 0, first_left = kNone;
  for (const metrics::EvalMetrics& row : rows_) {
    last = std::max(last, row.step);
    // The file of this one has dropped the points of the branch that the run had left before.
    if (lineage_.is_after_last_resume(row.manifest_sha256)) first_left = kNone;
    if (!lineage_.contains(row.step, row.manifest_sha256))
      first_left = std::min(first_left, row.step);
  }
  return first_left == kNone ? last : std::max<uint64_t>(first_left, 1) - 1;
}

Status ResultRecorder::write_best() {
  const auto best = values_.find_best();
  if (best == best_) return {};
  if (!best) {
    // That of a branch that the run has left; another one is kept.
    if (lineage_.contains(best_->step, best_->manifest_sha256)) return {};
    const Status removed = files_.remove_file(layout_.best_file());
    if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
    best_.reset();
    return {};
  }
  STOKER_RETURN_IF_ERROR(write_file_atomically(files_, layout_.best_file(), run::to_json(*best)));
  best_ = best;
  return {};
}

}  // namespace stoker::evaluator
