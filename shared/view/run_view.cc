#include "shared/view/run_view.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <boost/json.hpp>

#include "shared/base/dataset_schema.h"
#include "shared/base/directory_root.h"
#include "shared/base/file.h"
#include "shared/base/file_stamp.h"
#include "shared/base/hash.h"
#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"
#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/store.h"
#include "shared/checkpoint/verify.h"
#include "shared/config/load_config.h"
#include "shared/run/lineage.h"

namespace stoker::view {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxEvalBytes = 4 << 20;
constexpr uint64_t kMaxArtifactBytes = 8 << 20;
constexpr uint64_t kMaxConfigBytes = 256 << 10;
constexpr uint64_t kMaxSchemaBytes = 4 << 20;
constexpr size_t kMaxEvals = 500, kMaxCheckpoints = 200, kMaxArtifacts = 60, kLogLines = 200;
constexpr size_t kMaxSettingChanges = 200;
constexpr size_t kMaxSampleErrors = 50, kMaxEvents = 200;
constexpr uint64_t kTailBytes = 64 << 10, kEventBytes = 4 << 20;

json::value number(double value) {
  if (std::isfinite(value)) return value;
  return nullptr;
}

// The complete lines of `text`, the last `max` that `is_wanted`.
template <typename IsWanted>
json::array last_lines(std::string_view text, size_t max, IsWanted is_wanted) {
  std::vector<std::string_view> lines;
  for (size_t newline; (newline = text.find('\n')) != text.npos; text.remove_prefix(newline + 1)) {
    const std::string_view line = text.substr(0, newline);
    if (!line.empty() && is_wanted(line)) lines.push_back(line);
  }
  json::array array;
  for (size_t i = lines.size() - std::min(lines.size(), max); i < lines.size(); ++i)
    array.emplace_back(valid_utf8(lines[i]));
  return array;
}

// What a report lists: warnings, errors, and what starts, ends or changes a run.
bool is_main_event(std::string_view line) {
  for (const std::string_view part :
       {" warning ", " error ", "\"level\":\"warning\"", "\"level\":\"error\"", "daemon started",
        "daemon exited", "training started", "training resumed", "run resumed",
        "live setting changed", "control command", "configuration reloaded", "shutdown requested",
        "rolled back", "learning rate", "early stop"})
    if (line.find(part) != line.npos) return true;
  return false;
}

// The value of a field without spaces, of a log line in text or JSON; empty: there is none.
std::string_view field_of(std::string_view line, const std::string& key) {
  for (const std::string& start : {" " + key + "=", "\"" + key + "\":"}) {
    const size_t at = line.find(start);
    if (at == line.npos) continue;
    line.remove_prefix(at + start.size());
    if (line.starts_with('"')) line.remove_prefix(1);
    return line.substr(0, line.find_first_of(" \",}"));
  }
  return {};
}

// By name: which values are better, unit and meaning; empty: the run has no such file.
json::object metric_table_json(const run::RunLayout& layout) {
  json::object metrics;
  const auto text = read_file(layout.metric_table_file(), kMaxConfigBytes);
  if (!text.ok()) return metrics;
  const auto table = eval_metrics::parse_metric_table(*text, layout.metric_table_file());
  if (!table.ok()) return metrics;
  for (const eval_metrics::MetricDefinition& row : table->rows())
    metrics[row.name] = json::object{
        {"direction", to_string(row.direction)}, {"unit", row.unit}, {"help", row.help}};
  return metrics;
}

json::object metrics_json(const run::EvalResult& result) {
  json::object datasets;
  for (const run::DatasetResult& dataset : result.datasets) {
    json::object values;
    for (const auto& [name, value] : dataset.metrics) values[name] = number(value);
    values["num_samples"] = dataset.samples;
    datasets[dataset.dataset] = std::move(values);
  }
  return datasets;
}

json::value classes_json(const run::EvalResult& result) {
  for (const run::DatasetResult& dataset : result.datasets) {
    if (dataset.classes.empty()) continue;
    json::array classes, matrix;
    for (const auto& one : dataset.classes)
      classes.push_back(json::object{{"name", valid_utf8(one.name)},
                                     {"support", one.samples},
                                     {"precision", number(one.precision)},
                                     {"recall", number(one.recall)},
                                     {"f1", number(one.f1)}});
    if (dataset.confusion_matrix.size() <= 40)
      for (const auto& row : dataset.confusion_matrix) matrix.push_back(json::value_from(row));
    return json::object{{"step", result.step},
                        {"dataset", dataset.dataset},
                        {"classes", std::move(classes)},
                        {"confusion_matrix", std::move(matrix)}};
  }
  return nullptr;
}

struct ArtifactName {
  uint64_t step = 0;
  std::string dataset, kind;  // "misclassified.png"
};

// "step-000001200.val.misclassified.png"
std::optional<ArtifactName> parse_artifact_name(const std::string& name) {
  if (name.find('/') != name.npos || name.find('\0') != name.npos) return std::nullopt;
  const size_t dot = name.find('.');
  const auto step = checkpoint::CheckpointStore::parse_checkpoint_name(name.substr(0, dot));
  if (!step || dot == name.npos) return std::nullopt;
  const size_t extension = name.rfind('.');
  const size_t kind = name.rfind('.', extension - 1);
  if (kind == name.npos || kind <= dot) return std::nullopt;
  return ArtifactName{.step = *step,
                      .dataset = name.substr(dot + 1, kind - dot - 1),
                      .kind = name.substr(kind + 1)};
}

json::array artifacts_json(const run::RunLayout& layout) {
  json::array artifacts;
  const auto names = list_directory(layout.eval_artifacts_dir());
  if (!names.ok()) return artifacts;
  for (size_t i = names->size() - std::min(names->size(), kMaxArtifacts); i < names->size(); ++i) {
    const std::string& name = (*names)[i];
    const auto parsed = parse_artifact_name(name);
    if (!parsed) continue;
    artifacts.push_back(json::object{{"name", valid_utf8(name)},
                                     {"step", parsed->step},
                                     {"dataset", valid_utf8(parsed->dataset)},
                                     {"kind", valid_utf8(parsed->kind)}});
  }
  return artifacts;
}

// The newest objects of a file of JSON lines.
json::array newest_objects(const std::string& path, size_t count) {
  json::array objects;
  const json::array lines =
      last_lines(read_end(path, kTailBytes), count, [](std::string_view) { return true; });
  for (const json::value& line : lines) {
    boost::system::error_code error;
    json::value value = parse_json(line.as_string(), error, 4);
    if (!error && value.is_object()) objects.push_back(std::move(value));
  }
  return objects;
}

std::string directory_name(const std::string& path) {
  std::error_code error;
  const auto absolute = std::filesystem::canonical(path, error);
  const std::string name = (error ? std::filesystem::path(path) : absolute).filename().string();
  return valid_utf8(name.empty() ? path : name);
}

}  // namespace

std::vector<FoundRun> find_runs(const std::string& root, size_t max_runs) {
  namespace fs = std::filesystem;
  constexpr int kMaxDepth = 3;
  std::vector<std::pair<fs::file_time_type, FoundRun>> found;
  const auto visit = [&found, max_runs](const auto& self, const std::string& path,
                                        const std::string& name, int depth) -> void {
    if (found.size() >= max_runs) return;
    const run::RunLayout layout(path);
    std::error_code error;
    if (fs::exists(layout.config_file(), error) || fs::exists(layout.train_metrics_file(), error)) {
      auto time = fs::last_write_time(layout.train_metrics_file(), error);
      if (error) time = fs::last_write_time(path, error);
      found.push_back(
          {time, {.name = name.empty() ? directory_name(path) : name, .layout = layout}});
      return;
    }
    if (depth == kMaxDepth) return;
    for (fs::directory_iterator one(path, error), end;
         !error && one != end && found.size() < max_runs; one.increment(error)) {
      std::error_code ignored;
      const std::string child = one->path().filename().string();
      if (one->is_symlink(ignored) || !one->is_directory(ignored) || child.starts_with('.'))
        continue;
      self(self, join_path(path, child), name.empty() ? child : name + "/" + child, depth + 1);
    }
  };
  visit(visit, root, "", 0);
  std::ranges::stable_sort(found, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second.name < b.second.name;
  });
  std::vector<FoundRun> runs;
  for (auto& [time, one] : found) {
    one.name = valid_utf8(one.name);
    runs.push_back(std::move(one));
  }
  return runs;
}

RunView::RunView(run::RunLayout layout, std::string name)
    : layout_(std::move(layout)),
      name_(name.empty() ? directory_name(layout_.root()) : std::move(name)),
      history_(layout_.train_metrics_file()) {}

// The newest of the present branch, in the order of their names. Valid until the next call.
std::vector<const run::EvalResult*> RunView::read_evals() {
  const auto names = list_directory(layout_.eval_dir());
  const run::Lineage lineage = read_lineage(layout_);
  std::vector<const run::EvalResult*> evals;
  std::set<std::string> visited;
  for (size_t i = names.ok() ? names->size() : 0; i > 0 && evals.size() < kMaxEvals; --i) {
    const std::string& name = (*names)[i - 1];
    if (!name.starts_with("step-") || !name.ends_with(".json")) continue;
    visited.insert(name);
    CachedEval& cached = evals_[name];
    refresh(cached, name, /*with_details=*/false);
    const auto is_present = [&] {
      return cached.maybe_result &&
             lineage.contains(cached.maybe_result->step, cached.maybe_result->manifest_sha256);
    };
    if (is_present() && evals.empty())
      refresh(cached, name, /*with_details=*/true);
    else
      cached.remove_details();
    if (is_present()) evals.push_back(&*cached.maybe_result);
  }
  std::erase_if(evals_, [&](const auto& entry) { return !visited.contains(entry.first); });
  std::ranges::reverse(evals);
  return evals;
}

void RunView::refresh(CachedEval& cached, const std::string& name, bool with_details) const {
  const std::string path = join_path(layout_.eval_dir(), name);
  const std::string stamp = file_stamp(path);
  if (cached.stamp == stamp && (cached.has_details || !with_details)) return;
  const auto text = read_file(path, kMaxEvalBytes);
  auto result = text.ok() ? run::parse_eval_result(*text, path) : text.status();
  cached = {.stamp = stamp, .maybe_result = {}, .has_details = true};
  if (result.ok()) cached.maybe_result = *std::move(result);
}

void RunView::CachedEval::remove_details() {
  has_details = false;
  if (!maybe_result) return;
  for (run::DatasetResult& dataset : maybe_result->datasets) {
    dataset.classes = {};
    dataset.confusion_matrix = {};
    dataset.pr_curves = {};
  }
}

RunSummary RunView::summary() const { return read_summary(layout_, name_); }

json::array RunView::read_checkpoints(json::object& environment) {
  const checkpoint::CheckpointStore store(layout_.checkpoints_dir(), default_file_system());
  const auto entries = store.list();
  json::array checkpoints;
  std::map<std::string, CachedManifest> manifests;
  const size_t count = entries.ok() ? entries->size() : 0;
  for (size_t i = count - std::min(count, kMaxCheckpoints); i < count; ++i) {
    const std::string path = join_path((*entries)[i].path, checkpoint::kManifestName);
    CachedManifest manifest = manifests_[path];
    if (const std::string stamp = file_stamp(path); manifest.stamp != stamp) {
      const auto text = read_file(path, checkpoint::kMaxManifestBytes);
      const auto parsed = text.ok() ? checkpoint::parse_manifest(*text, path) : text.status();
      if (!parsed.ok()) continue;
      manifest = {.stamp = stamp,
                  .created = parsed->created_at,
                  .sha256 = sha256_hex(*text),
                  .environment = {{"stoker_version", parsed->stoker_version},
                                  {"torch_version", parsed->torch_version},
                                  {"live_settings", parsed->live_settings},
                                  {"processor", parsed->processor},
                                  {"system", parsed->system},
                                  {"device", parsed->device},
                                  {"num_threads", std::to_string(parsed->num_threads)}}};
      for (const auto& file : parsed->files) manifest.bytes += file.bytes;
    }
    checkpoints.push_back(json::object{{"step", (*entries)[i].step},
                                       {"created_at", manifest.created},
                                       {"bytes", manifest.bytes},
                                       {"manifest_sha256", manifest.sha256}});
    environment = manifest.environment;
    manifests[path] = std::move(manifest);
  }
  manifests_ = std::move(manifests);
  return checkpoints;
}

std::string RunView::overview() {
  const auto root_of_files = DirectoryRoot::open(layout_.root());
  boost::system::error_code ignored;
  if (sent_stamp_.empty()) sent_stamp_ = change_stamp();
  json::object root = parse_json(to_json(summary()), ignored).as_object();
  const std::vector<const run::EvalResult*> evals = read_evals();
  json::array evaluations;
  for (const run::EvalResult* const eval : evals)
    evaluations.push_back(json::object{{"step", eval->step},
                                       {"created_at", eval->created},
                                       {"duration_seconds", number(eval->seconds)},
                                       {"manifest_sha256", eval->manifest_sha256},
                                       {"datasets", metrics_json(*eval)}});
  root["evaluations"] = std::move(evaluations);
  root["metrics"] = metric_table_json(layout_);
  root["classes"] = evals.empty() ? nullptr : classes_json(*evals.back());

  json::object environment;
  root["checkpoints"] = read_checkpoints(environment);
  root["artifacts"] = artifacts_json(layout_);
  root["sample_errors"] = newest_objects(layout_.sample_errors_file(), kMaxSampleErrors);
  root["setting_changes"] = newest_objects(layout_.setting_changes_file(), kMaxSettingChanges);
  const auto config = read_file(layout_.config_file(), kMaxConfigBytes);
  root["config"] = config.ok() ? config::hide_secrets(valid_utf8(*config)) : "";
  // Before the log is read: a line can be in both, but in one at least.
  if (!maybe_tail_) (void)open_tail();
  const std::string log = read_end(layout_.trainer_log(), kEventBytes);
  root["log"] = last_lines(log, kLogLines, [](std::string_view) { return true; });
  root["events"] = last_lines(log, kMaxEvents, is_main_event);
  const json::array starts = last_lines(
      log, 1, [](std::string_view line) { return line.find("training started") != line.npos; });
  if (!starts.empty()) {
    for (const char* const key : {"device", "num_threads"})
      environment[key] = std::string(field_of(starts.front().as_string(), key));
  }
  const auto schema = read_file(layout_.data_schema_file(), kMaxSchemaBytes);
  if (schema.ok())
    if (const auto parsed = parse_dataset_schema(*schema, layout_.data_schema_file()); parsed.ok())
      environment["data"] = describe(*parsed);
  if (!environment.empty()) root["environment"] = std::move(environment);
  return json::serialize(root);
}

std::string RunView::curves(size_t max_rows) {
  const auto root_of_files = DirectoryRoot::open(layout_.root());
  history_.refresh();
  // For the first page. Later, other pages have not received what is between.
  if (sent_rows_ == 0) (void)history_.rows_since(sent_rows_);
  return history_.to_json(max_rows);
}

std::string RunView::open_tail() {
  auto tail = LogTail::open(layout_.trainer_log(), kLogLines);
  if (!tail.ok()) return "";
  maybe_tail_.emplace(*std::move(tail));
  return read_tail();
}

std::string RunView::read_tail() {
  constexpr int kMaxReads = 8;  // a file, and those after rotations
  std::string lines;
  for (int i = 0; i < kMaxReads; ++i) {
    const bool is_skipped = maybe_tail_->skip_to_last(kTailBytes);
    auto more = maybe_tail_->read_more();
    if (!more.ok() || more->empty()) break;
    if (is_skipped) {
      lines.clear();
      more->erase(0, std::min(more->size(), more->find('\n') + 1));
    }
    lines += *more;
  }
  return lines.substr(0, lines.rfind('\n') + 1);  // npos + 1 is 0
}

std::string RunView::change_stamp() const {
  std::string stamp;
  for (const std::string& path :
       {layout_.eval_dir(), layout_.eval_artifacts_dir(), layout_.checkpoints_dir(),
        layout_.best_file(), layout_.lineage_file(), layout_.sample_errors_file(),
        layout_.exit_status_file(), layout_.last_start_file(), layout_.paused_file(),
        layout_.config_file()})
    stamp += file_stamp(path) + " ";
  return stamp;
}

std::string RunView::events() {
  const auto root_of_files = DirectoryRoot::open(layout_.root());
  std::string out;
  history_.refresh();
  const bool is_first = sent_rows_ == 0;
  const auto rows = history_.rows_since(sent_rows_);
  if (!rows && !is_first) out += "event: reset\ndata: {}\n\n";
  if (rows && !rows->empty()) out += "event: train\ndata: " + history_.to_json(*rows) + "\n\n";
  std::string log = maybe_tail_ ? read_tail() : open_tail();
  if (sent_stamp_.empty()) log.clear();  // a page reads these lines itself
  const json::array lines = last_lines(log, kLogLines, [](std::string_view) { return true; });
  if (!lines.empty()) out += "event: log\ndata: " + json::serialize(lines) + "\n\n";
  if (std::string stamp = change_stamp(); stamp != sent_stamp_) {
    if (!sent_stamp_.empty()) out += "event: run\ndata: {}\n\n";
    sent_stamp_ = std::move(stamp);
  }
  return out;
}

Result<ArtifactFile> RunView::read_artifact(const std::string& name) const {
  const Status missing(StatusCode::kNotFound, quote_for_message(name) + ": no such artifact");
  const auto parsed = parse_artifact_name(name);
  if (!parsed) return missing;
  const auto root_of_files = DirectoryRoot::open(layout_.root());
  const std::string path = join_path(layout_.eval_artifacts_dir(), name);
  std::string bytes = read_end(path, kMaxArtifactBytes + 1);
  if (bytes.empty() || bytes.size() > kMaxArtifactBytes) return missing;
  if (!parsed->kind.ends_with(".png"))
    return ArtifactFile{.content_type = "text/plain; charset=utf-8", .bytes = valid_utf8(bytes)};
  if (!bytes.starts_with("\x89PNG\r\n\x1a\n")) return missing;
  return ArtifactFile{.content_type = "image/png", .bytes = std::move(bytes)};
}

}  // namespace stoker::view
