#include "ctl/checkpoint_list.h"

#include <algorithm>
#include <cmath>

#include <boost/json.hpp>

#include "ctl/run_locator.h"
#include "ctl/text_format.h"
#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/file_locks.h"
#include "shared/base/hash.h"
#include "shared/base/readable_format.h"
#include "shared/base/utf8.h"
#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/store.h"
#include "shared/checkpoint/verify.h"
#include "shared/config/load_config.h"
#include "shared/retention/retention.h"

namespace stoker::ctl {

namespace {

// The checksum distinguishes this checkpoint from an earlier one saved at the same step.
const run::EvalResult* find_eval(const std::vector<run::EvalResult>& evals, uint64_t step,
                                 const std::string& manifest_sha256) {
  for (const run::EvalResult& eval : evals)
    if (eval.step == step && eval.manifest_sha256 == manifest_sha256) return &eval;
  return nullptr;
}

ListedCheckpoint describe(const checkpoint::CheckpointEntry& entry,
                          const std::vector<run::EvalResult>& evals, const CheckpointList& list) {
  ListedCheckpoint listed{.step = entry.step, .path = entry.path};
  const std::string path = join_path(entry.path, "manifest.json");
  const auto text = read_file(path, checkpoint::kMaxManifestBytes);
  if (!text.ok()) {
    listed.error = text.status().message();
    return listed;
  }
  const auto manifest = checkpoint::parse_manifest(*text, path);
  if (!manifest.ok()) {
    listed.error = manifest.status().message();
    return listed;
  }
  listed.created = manifest->created_at;
  listed.sample_errors = manifest->sample_errors;
  for (const auto& file : manifest->files) listed.bytes += file.bytes;
  const std::string sha256 = sha256_hex(*text);
  const run::EvalResult* const eval = find_eval(evals, entry.step, sha256);
  for (const MetricName& metric : list.metrics)
    listed.values.push_back(eval == nullptr ? std::nullopt : find_value(*eval, metric));
  listed.best = list.maybe_best.has_value() && list.maybe_best->step == entry.step &&
                list.maybe_best->manifest_sha256 == sha256;
  return listed;
}

// Sets `is_open` and `kept_by`. `kept_by` stays empty if the run directory has no usable
// configuration, as in a partial copy of a run.
void add_retention_reasons(const run::RunLayout& layout,
                           std::vector<ListedCheckpoint>& checkpoints) {
  const FileLocks locks = FileLocks::read();
  for (ListedCheckpoint& entry : checkpoints)
    entry.is_open = locks.is_locked(join_path(entry.path, checkpoint::kChecksumsName));
  const auto config = config::load_config(layout.config_file(), {});
  if (!config.ok()) return;
  const auto table = eval_metrics::read_metric_table(layout.metric_table_file());
  if (!table.ok()) return;
  const auto required = retention::required_info(*config, *table);
  if (!required.ok()) return;
  const checkpoint::CheckpointStore store(layout.checkpoints_dir(), default_file_system());
  const auto infos = retention::collect_checkpoint_info(store, layout, *required);
  if (!infos.ok()) return;
  for (const retention::RetentionDecision& decision : retention::apply_retention(
           retention::make_retention_policy(*config), *infos, system_clock().wall(), false)) {
    const auto entry = std::ranges::find(checkpoints, decision.step, &ListedCheckpoint::step);
    if (entry != checkpoints.end() && decision.reason != retention::RetentionReason::kDelete)
      entry->kept_by = retention::to_string(decision.reason);
  }
}

// "?" if the time is invalid or in the future.
std::string format_age(const std::string& iso8601, std::chrono::system_clock::time_point now) {
  const auto then = parse_iso8601(iso8601);
  if (!then || *then > now) return "?";
  return format_duration(std::floor(std::chrono::duration<double>(now - *then).count()));
}

// For example "* best, newest, open".
std::string format_notes(const ListedCheckpoint& entry, bool is_newest) {
  std::string notes = entry.best ? "* best" : "";
  const auto add = [&notes](const std::string& note) {
    notes += (notes.empty() ? "" : ", ") + note;
  };
  if (is_newest) add("newest");
  const bool is_reported =
      (entry.kept_by == "newest" && is_newest) || (entry.kept_by == "best" && entry.best);
  if (!entry.kept_by.empty() && !is_reported) add("kept: " + entry.kept_by);
  if (entry.is_open) add("open");
  return notes;
}

std::string format_best(const CheckpointList& list) {
  if (!list.maybe_best.has_value()) return "";
  const run::BestCheckpoint& best = *list.maybe_best;
  const bool has_best_checkpoint =
      std::any_of(list.checkpoints.begin(), list.checkpoints.end(),
                  [](const ListedCheckpoint& entry) { return entry.best; });
  return "best " + printable(MetricName{best.dataset, best.metric}.text()) + " " +
         format_value(best.value) + " at step " + format_count(best.step) +
         (has_best_checkpoint ? "\n" : "; that checkpoint was deleted\n");
}

}  // namespace

Result<CheckpointList> list_checkpoints(const run::RunLayout& layout) {
  const checkpoint::CheckpointStore store(layout.checkpoints_dir(), default_file_system());
  STOKER_ASSIGN_OR_RETURN(const auto entries, store.list());
  STOKER_ASSIGN_OR_RETURN(const auto evals, read_evals(layout));
  CheckpointList list{.run_dir = layout.root(), .metrics = reported_metrics(evals)};
  auto best = run::read_best(layout);
  if (!best.ok() && best.status().code() != StatusCode::kNotFound) return best.status();
  if (best.ok()) list.maybe_best = *std::move(best);
  for (const auto& entry : entries) list.checkpoints.push_back(describe(entry, evals, list));
  add_retention_reasons(layout, list.checkpoints);
  return list;
}

std::string render_list(const CheckpointList& list, const TextStyle& style,
                        std::chrono::system_clock::time_point now) {
  if (list.checkpoints.empty())
    return "no checkpoint in " + printable(list.run_dir) + " " +
           printable(explain_no_checkpoint(run::RunLayout(list.run_dir))) + "\n";
  std::vector<Column> columns = {{.title = "step"}, {.title = "age"}, {.title = "size"}};
  for (const MetricName& metric : list.metrics)
    columns.push_back({.title = wrapped_title(printable(metric.text())),
                       .can_drop = &metric != &list.metrics.front()});
  const bool any_sample_errors = std::ranges::any_of(
      list.checkpoints, [](const auto& entry) { return entry.sample_errors.value_or(0) > 0; });
  if (any_sample_errors) columns.push_back({.title = "sample\nerrors", .can_drop = true});
  columns.push_back({.title = "note", .left = true});
  TextTable table(std::move(columns));
  for (const ListedCheckpoint& entry : list.checkpoints) {
    std::vector<std::string> cells = {format_count(entry.step)};
    const bool is_valid = entry.error.empty();
    cells.push_back(is_valid ? format_age(entry.created, now) : "?");
    cells.push_back(is_valid ? format_bytes(entry.bytes) : "?");
    for (size_t i = 0; i < list.metrics.size(); ++i)
      cells.push_back(is_valid && entry.values[i] ? format_value(*entry.values[i]) : "-");
    if (any_sample_errors)
      cells.push_back(entry.sample_errors ? format_count(*entry.sample_errors) : "-");
    cells.push_back(is_valid ? format_notes(entry, &entry == &list.checkpoints.back())
                             : "CORRUPT: " + printable(entry.error));
    table.add(std::move(cells));
  }
  return table.render(style) + format_best(list);
}

std::string to_json(const CheckpointList& list) {
  namespace json = boost::json;
  const auto number = [](double value) -> json::value {
    if (std::isfinite(value)) return value;
    return nullptr;
  };
  json::array checkpoints;
  for (const ListedCheckpoint& entry : list.checkpoints) {
    json::object fields{{"step", entry.step}, {"path", entry.path}};
    if (entry.error.empty()) {
      fields["created_at"] = entry.created;
      fields["bytes"] = entry.bytes;
      json::object metrics;
      for (size_t i = 0; i < list.metrics.size(); ++i)
        metrics[list.metrics[i].metric] = entry.values[i] ? number(*entry.values[i]) : nullptr;
      fields["value"] = metrics.empty() ? nullptr : metrics.begin()->value();
      fields["metrics"] = std::move(metrics);
      if (entry.sample_errors) fields["sample_errors"] = *entry.sample_errors;
      fields["is_best"] = entry.best;
      fields["kept_by"] = entry.kept_by;
      fields["is_open"] = entry.is_open;
    } else {
      fields["error"] = entry.error;
    }
    checkpoints.push_back(std::move(fields));
  }
  json::object root{{"run_dir", list.run_dir},
                    {"dataset", list.metrics.empty() ? "" : list.metrics.front().dataset},
                    {"metric", list.metrics.empty() ? "" : list.metrics.front().metric},
                    {"checkpoints", std::move(checkpoints)}};
  if (list.maybe_best.has_value())
    root["best"] = {{"step", list.maybe_best->step}, {"value", number(list.maybe_best->value)}};
  return json::serialize(root);
}

}  // namespace stoker::ctl
