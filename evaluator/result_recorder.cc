#include "evaluator/result_recorder.h"

#include <algorithm>
#include <map>
#include <utility>

#include "shared/base/clock.h"
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
  record.wall_time = result.created;
  return record;
}

}  // namespace

struct ResultRecorder::Sinks {
  std::unique_ptr<metrics::JsonLinesFile> rows;
  std::string tensorboard;  // directory of the event files; empty: none
  // By dataset; created with its first record.
  std::map<std::string, std::unique_ptr<metrics::EventFile>> events;
};

ResultRecorder::ResultRecorder(FileSystem& files, const run::RunLayout& layout,
                               run::Monitor monitor)
    : files_(files),
      layout_(layout),
      monitor_(monitor),
      values_(std::move(monitor)),
      sinks_(std::make_unique<Sinks>()) {}
ResultRecorder::~ResultRecorder() = default;

// ---- Open

Result<std::unique_ptr<ResultRecorder>> ResultRecorder::open(FileSystem& files,
                                                             const run::RunLayout& layout,
                                                             run::Monitor monitor,
                                                             bool tensorboard) {
  std::unique_ptr<ResultRecorder> log(new ResultRecorder(files, layout, std::move(monitor)));
  STOKER_RETURN_IF_ERROR(make_directories(files, layout.metrics_dir()));
  STOKER_ASSIGN_OR_RETURN(log->sinks_->rows,
                          metrics::JsonLinesFile::open(files, layout.eval_metrics_file()));
  if (tensorboard) log->sinks_->tensorboard = join_path(layout.tensorboard_dir(), "eval");
  log->restore_best();
  STOKER_RETURN_IF_ERROR(log->read_records());
  STOKER_RETURN_IF_ERROR(log->write_best());
  STOKER_RETURN_IF_ERROR(log->add_missing_results());
  return log;
}

void ResultRecorder::restore_best() {
  const auto best = run::read_best(layout_.best_file());
  if (best.ok()) {
    best_ = *best;
    values_.restore(*best);
  } else if (best.status().code() != StatusCode::kNotFound) {
    log_warn("best result file invalid", {{"path", layout_.best_file()},
                                          {"error", best.status().to_string()},
                                          {"action", "rebuilt from the results"}});
  }
}

Status ResultRecorder::read_records() {
  STOKER_ASSIGN_OR_RETURN(const metrics::RecordsRead read,
                          metrics::read_records(layout_.eval_metrics_file()));
  for (const metrics::MetricsRecord& record : read.records) {
    const auto parsed = metrics::eval_metrics_from(record);
    if (!parsed.ok()) continue;
    records_.insert(
        record_key(parsed->step, parsed->dataset, parsed->manifest_sha256, parsed->wall_time));
    values_.add(parsed->step, parsed->manifest_sha256, parsed->dataset, parsed->metrics);
  }
  return {};
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
  for (const run::DatasetResult& dataset : result.datasets)
    values_.add(result.step, result.manifest_sha256, dataset.dataset, dataset.metrics);
  STOKER_RETURN_IF_ERROR(write_best());
  for (const run::DatasetResult& dataset : result.datasets) {
    const std::string key =
        record_key(result.step, dataset.dataset, result.manifest_sha256, result.created);
    if (records_.contains(key)) continue;
    // A TensorBoard error must not block the recording of results.
    if (const Status status = write_tensorboard(result.step, dataset); !status.ok())
      log_warn("tensorboard write failed", {{"error", status.to_string()}});
    STOKER_RETURN_IF_ERROR(add_record(result, dataset));
    records_.insert(key);
  }
  return {};
}

Status ResultRecorder::add_record(const run::EvalResult& result,
                                  const run::DatasetResult& dataset) {
  STOKER_RETURN_IF_ERROR(
      sinks_->rows->append(metrics::to_record(to_eval_metrics(result, dataset))));
  STOKER_RETURN_IF_ERROR(sinks_->rows->sync());
  std::string summary;
  for (const auto& [name, value] : dataset.metrics)
    summary += (summary.empty() ? "" : " ") + name + "=" + std::to_string(value);
  log_info("evaluation finished", {{"step", result.step},
                                   {"dataset", dataset.dataset},
                                   {"samples", dataset.samples},
                                   {"metrics", summary},
                                   {"duration_seconds", result.seconds},
                                   {"is_best", best_ && best_->step == result.step}});
  return {};
}

// One TensorBoard run per dataset, with the tags of the trainer, so that both losses share a chart.
Status ResultRecorder::write_tensorboard(uint64_t step, const run::DatasetResult& dataset) {
  if (sinks_->tensorboard.empty()) return {};
  auto& events = sinks_->events[dataset.dataset];
  if (!events) {
    STOKER_ASSIGN_OR_RETURN(
        events,
        metrics::EventFile::create(files_, system_clock(),
                                   join_path(sinks_->tensorboard, dataset.dataset), std::nullopt));
  }
  for (const auto& [name, value] : dataset.metrics) events->add_scalar(name, step, value);
  for (const eval_metrics::PrCurve& curve : dataset.pr_curves)
    events->add_pr_curve("pr_curves/" + curve.name, step, curve.true_positives,
                         curve.false_positives);
  for (const Artifact& view : read_artifacts(layout_, step, dataset.dataset)) {
    if (view.is_image())
      events->add_image(view.tag(), step, view.bytes);
    else
      events->add_text(view.tag(), step, view.bytes);
  }
  return events->flush();
}

Status ResultRecorder::write_best() {
  const auto best = values_.find_best();
  if (!best || best == best_) return {};
  STOKER_RETURN_IF_ERROR(write_file_atomically(files_, layout_.best_file(), run::to_json(*best)));
  best_ = best;
  return {};
}

}  // namespace stoker::evaluator
