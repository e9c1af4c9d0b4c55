#include "ctl/checkpoint_list.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include <boost/json.hpp>

#include "ctl/text_format.h"
#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/store.h"
#include "shared/checkpoint/verify.h"
#include "shared/config/load_config.h"
#include "shared/retention/retention.h"

namespace stoker::ctl {

// Format of a line: "1: FLOCK  ADVISORY  READ 4711 fe:00:1234567 0 EOF"; device numbers are
// hexadecimal.
FileLocks FileLocks::read() {
  FileLocks locks;
  std::ifstream stream("/proc/locks");
  for (std::string line; std::getline(stream, line);) {
    unsigned device_major = 0, device_minor = 0;
    unsigned long inode = 0;
    const int read = std::sscanf(line.c_str(), "%*d: FLOCK %*s %*s %*d %x:%x:%lu", &device_major,
                                 &device_minor, &inode);
    if (read == 3) locks.held_.emplace_back(makedev(device_major, device_minor), inode);
  }
  return locks;
}

bool FileLocks::holds(const std::string& path) const {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  return std::ranges::count(held_, std::pair(info.st_dev, info.st_ino)) > 0;
}

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
  listed.created = manifest->created;
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

// Sets `held` and `kept_by`. `kept_by` stays empty if the run directory has no usable
// configuration, as in a partial copy of a run.
void find_reasons(const run::RunLayout& layout, std::vector<ListedCheckpoint>& checkpoints) {
  const FileLocks locks = FileLocks::read();
  for (ListedCheckpoint& one : checkpoints)
    one.held = locks.holds(join_path(one.path, checkpoint::kChecksumsName));
  const auto config = config::load_config(layout.config_file(), {});
  if (!config.ok()) return;
  const checkpoint::CheckpointStore store(layout.checkpoints_dir(), default_file_system());
  const auto infos =
      retention::collect_checkpoint_info(store, layout, retention::required_info(*config));
  if (!infos.ok()) return;
  for (const retention::RetentionDecision& decision : retention::apply_retention(
           retention::make_retention_policy(*config), *infos, system_clock().wall(), false)) {
    const auto one = std::ranges::find(checkpoints, decision.step, &ListedCheckpoint::step);
    if (one != checkpoints.end() && decision.reason != retention::RetentionReason::kDelete)
      one->kept_by = retention::to_string(decision.reason);
  }
}

// "?" if the time is invalid or in the future.
std::string age_of(const std::string& iso8601, std::chrono::system_clock::time_point now) {
  const auto then = parse_iso8601(iso8601);
  if (!then || *then > now) return "?";
  return format_duration(std::floor(std::chrono::duration<double>(now - *then).count()));
}

// For example "* best, newest, open".
std::string notes_of(const ListedCheckpoint& one, bool is_newest) {
  std::string notes = one.best ? "* best" : "";
  const auto add = [&notes](const std::string& note) {
    notes += (notes.empty() ? "" : ", ") + note;
  };
  if (is_newest) add("newest");
  const bool is_reported =
      (one.kept_by == "newest" && is_newest) || (one.kept_by == "best" && one.best);
  if (!one.kept_by.empty() && !is_reported) add("kept: " + one.kept_by);
  if (one.held) add("open");
  return notes;
}

std::string format_best(const CheckpointList& list) {
  if (!list.maybe_best.has_value()) return "";
  const run::BestCheckpoint& best = *list.maybe_best;
  const bool num_kept = std::any_of(list.checkpoints.begin(), list.checkpoints.end(),
                                    [](const ListedCheckpoint& one) { return one.best; });
  return "best " + printable(MetricName{best.dataset, best.metric}.text()) + " " +
         format_number(best.value, 5) + " at step " + format_count(best.step) +
         (num_kept ? "\n" : "; that checkpoint is no longer kept\n");
}

}  // namespace

Result<CheckpointList> list_checkpoints(const run::RunLayout& layout) {
  const checkpoint::CheckpointStore store(layout.checkpoints_dir(), default_file_system());
  STOKER_ASSIGN_OR_RETURN(const auto entries, store.list());
  STOKER_ASSIGN_OR_RETURN(const auto evals, read_evals(layout));
  CheckpointList list{.run_dir = layout.root(), .metrics = reported_metrics(evals)};
  auto best = run::read_best(layout.best_file());
  if (!best.ok() && best.status().code() != StatusCode::kNotFound) return best.status();
  if (best.ok()) list.maybe_best = *std::move(best);
  for (const auto& entry : entries) list.checkpoints.push_back(describe(entry, evals, list));
  find_reasons(layout, list.checkpoints);
  return list;
}

std::string render_list(const CheckpointList& list, const TextStyle& style,
                        std::chrono::system_clock::time_point now) {
  if (list.checkpoints.empty()) return "no checkpoint in " + printable(list.run_dir) + " yet\n";
  std::vector<Column> columns = {{.title = "step"}, {.title = "age"}, {.title = "size"}};
  for (const MetricName& metric : list.metrics)
    columns.push_back({.title = wrapped_title(printable(metric.text())),
                       .can_drop = &metric != &list.metrics.front()});
  const bool any_sample_errors = std::ranges::any_of(
      list.checkpoints, [](const auto& one) { return one.sample_errors.value_or(0) > 0; });
  if (any_sample_errors) columns.push_back({.title = "sample\nerrors", .can_drop = true});
  columns.push_back({.title = "note", .left = true});
  TextTable table(std::move(columns));
  for (const ListedCheckpoint& one : list.checkpoints) {
    std::vector<std::string> cells = {format_count(one.step)};
    const bool is_sound = one.error.empty();
    cells.push_back(is_sound ? age_of(one.created, now) : "?");
    cells.push_back(is_sound ? format_bytes(one.bytes) : "?");
    for (size_t i = 0; i < list.metrics.size(); ++i)
      cells.push_back(is_sound && one.values[i] ? format_number(*one.values[i], 5) : "-");
    if (any_sample_errors)
      cells.push_back(one.sample_errors ? format_count(*one.sample_errors) : "-");
    cells.push_back(is_sound ? notes_of(one, &one == &list.checkpoints.back())
                             : "CORRUPT: " + printable(one.error));
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
  for (const ListedCheckpoint& one : list.checkpoints) {
    json::object fields{{"step", one.step}, {"path", one.path}};
    if (one.error.empty()) {
      fields["created_at"] = one.created;
      fields["bytes"] = one.bytes;
      json::object metrics;
      for (size_t i = 0; i < list.metrics.size(); ++i)
        metrics[list.metrics[i].metric] = one.values[i] ? number(*one.values[i]) : nullptr;
      fields["value"] = metrics.empty() ? nullptr : metrics.begin()->value();
      fields["metrics"] = std::move(metrics);
      if (one.sample_errors) fields["sample_errors"] = *one.sample_errors;
      fields["is_best"] = one.best;
      fields["kept_by"] = one.kept_by;
      fields["is_open"] = one.held;
    } else {
      fields["error"] = one.error;
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
