#include "shared/view/run_view.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <set>
#include <span>

#include <boost/json.hpp>

#include "shared/base/dataset_schema.h"
#include "shared/base/directory_root.h"
#include "shared/base/file.h"
#include "shared/base/file_stamp.h"
#include "shared/base/hash.h"
#include "shared/base/json_parser.h"
#include "shared/base/log.h"
#include "shared/base/utf8.h"
#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/store.h"
#include "shared/checkpoint/verify.h"
#include "shared/config/load_config.h"
#include "shared/config/owned_config.h"
#include "shared/run/lineage.h"

namespace stoker::view {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxEvalBytes = 4 << 20;
constexpr uint64_t kMaxArtifactBytes = 8 << 20;
constexpr uint64_t kMaxArtifactPixels = 1 << 22;  // a small file can have very many
constexpr uint64_t kMaxSchemaBytes = 4 << 20;
constexpr size_t kMaxEvals = 500, kMaxCheckpoints = 200, kMaxArtifacts = 60, kLogLines = 200;
constexpr size_t kMaxSettingChanges = 200;
constexpr size_t kMaxSampleErrors = 50, kMaxEvents = 200;
constexpr uint64_t kTailBytes = 64 << 10, kEventBytes = 4 << 20;
// Results and manifests that a call reads; what it has no time for is read by the next one. The run can be that of
// another user, and the thread that reads it serves other runs as well.
constexpr uint64_t kBytesOfCall = 256 << 20, kCurveBytes = 256 << 20;
constexpr uint64_t kMaxCurveBytes = uint64_t{16} << 30;
constexpr size_t kMaxShownMatrix = 40, kMaxTime = 64;

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

// Level and event of a line of the log, in text or JSON; what follows the event is included.
struct LoggedEvent {
  std::string_view level, event;

  bool is(std::string_view name) const {
    return event.starts_with(name) &&
           (event.size() == name.size() || event[name.size()] == ' ' || event[name.size()] == '"');
  }
};

LoggedEvent parse_logged_event(std::string_view line) {
  const auto behind = [line](std::string_view start) {
    const size_t at = line.find(start);
    return at == line.npos ? std::string_view() : line.substr(at + start.size());
  };
  if (line.starts_with('{')) return {behind("\"level\":\""), behind("\"event\":\"")};
  const std::string_view level = behind(" ");  // the first word is the time
  const std::string_view rest = level.substr(std::min(level.find(' '), level.size()));
  return {level, rest.substr(std::min(rest.find_first_not_of(' '), rest.size()))};
}

// What starts, ends or changes a run. Warnings and errors are listed as well.
constexpr LogEvent<LogLevel::kInfo> kMainEvents[] = {
    "daemon started",       "training started",         "run resumed",
    "live setting resumed", "control command",          "training paused",
    "training resumed",     "live setting changed",     "configuration reloaded",
    "early stop requested", "early stopping triggered", "shutdown requested",
    "daemon exited"};

// Whether a report lists the line.
bool is_main_event(std::string_view line) {
  const LoggedEvent logged = parse_logged_event(line);
  return logged.level.starts_with("warning") || logged.level.starts_with("error") ||
         (logged.level.starts_with("info") &&
          std::ranges::any_of(kMainEvents, [&](const auto& one) { return logged.is(one.name()); }));
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
  const auto table = eval_metrics::read_metric_table(layout.metric_table_file());
  if (!table.ok()) return metrics;
  for (const eval_metrics::MetricDefinition& row : table->rows())
    metrics[row.name] = json::object{
        {"direction", to_string(row.direction)}, {"unit", row.unit}, {"help", row.help}};
  return metrics;
}

// Of the curves and evaluations.
json::array resource_table_json() {
  json::array table;
  for (const ResourceField& field : std::span(kResourceFields).first(kRecordedResources))
    table.push_back(json::object{
        {"name", field.name}, {"unit", field.unit}, {"label", field.label}, {"help", field.help}});
  return table;
}

json::object resources_json(const ResourceUse& use) {
  json::object values;
  for (size_t i = 0; i < kRecordedResources; ++i)
    if (std::isfinite(use.values()[i])) values[kResourceFields[i].name] = use.values()[i];
  return values;
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
    if (dataset.classes.empty() || dataset.classes.size() > eval_metrics::kMaxPerClassMetrics)
      continue;
    json::array classes, matrix;
    for (const auto& one : dataset.classes)
      classes.push_back(json::object{{"name", valid_utf8(one.name)},
                                     {"support", one.samples},
                                     {"precision", number(one.precision)},
                                     {"recall", number(one.recall)},
                                     {"f1", number(one.f1)}});
    const size_t size = dataset.confusion_matrix.size();
    const auto is_square = [size](const auto& row) { return row.size() == size; };
    if (size <= kMaxShownMatrix && std::ranges::all_of(dataset.confusion_matrix, is_square))
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

// Of few pixels, for which a browser needs memory: the header has the width and the height.
bool is_small_png(std::string_view bytes) {
  constexpr std::string_view kStart("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
  if (!bytes.starts_with(kStart) || bytes.size() < kStart.size() + 2 * sizeof(uint32_t))
    return false;
  const auto number_at = [bytes](size_t offset) {
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof(uint32_t); ++i)
      number = number << 8 | static_cast<unsigned char>(bytes[offset + i]);
    return number;
  };
  const uint64_t width = number_at(kStart.size()), height = number_at(kStart.size() + 4);
  return height > 0 && width > 0 && width <= kMaxArtifactPixels / height;
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

namespace fs = std::filesystem;

// A directory that is searched for runs.
struct SearchedFolder {
  std::string path, name;  // the name is that below the root
  int depth = 0;
  uid_t owner = 0;
};

// What one user has below the root. Nobody can hide the runs of others, or keep a program from answering, with very many
// directories.
struct OwnedFolders {
  size_t folders = 0, entries = 0;
  std::vector<std::pair<fs::file_time_type, FoundRun>> runs;
};
constexpr size_t kMaxFolders = 50'000, kMaxEntries = 1'000'000;  // of one user

std::optional<uid_t> owner_of_folder(const std::string& path, int flags) {
  struct stat info {};
  if (::fstatat(AT_FDCWD, path.c_str(), &info, flags) != 0 || !S_ISDIR(info.st_mode))
    return std::nullopt;
  return info.st_uid;
}

bool add_run(const SearchedFolder& folder, size_t max_runs, OwnedFolders& of_owner) {
  const run::RunLayout layout(folder.path);
  std::error_code error;
  if (!fs::exists(layout.config_file(), error) && !fs::exists(layout.train_metrics_file(), error))
    return false;
  if (of_owner.runs.size() == max_runs) return true;
  auto time = fs::last_write_time(layout.train_metrics_file(), error);
  if (error) time = fs::last_write_time(folder.path, error);
  const std::string name = folder.name.empty() ? directory_name(folder.path) : folder.name;
  of_owner.runs.push_back({time, {.name = valid_utf8(name), .layout = layout}});
  return true;
}

// The newest first; of several users, as many of each, if there are more than `max_runs`.
std::vector<FoundRun> newest_runs(std::map<uid_t, OwnedFolders>& owners, size_t max_runs) {
  struct Ranked {
    size_t place = 0;  // among those of its owner
    fs::file_time_type time;
    FoundRun* run = nullptr;
  };
  const auto is_newer = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second.name < b.second.name;
  };
  std::vector<Ranked> all;
  for (auto& [owner, found] : owners) {
    std::ranges::stable_sort(found.runs, is_newer);
    for (size_t i = 0; i < found.runs.size(); ++i)
      all.push_back({.place = i, .time = found.runs[i].first, .run = &found.runs[i].second});
  }
  std::ranges::stable_sort(all, {}, &Ranked::place);
  all.resize(std::min(all.size(), max_runs));
  std::ranges::stable_sort(all, [](const Ranked& a, const Ranked& b) {
    return a.time != b.time ? a.time > b.time : a.run->name < b.run->name;
  });
  std::vector<FoundRun> runs;
  for (const Ranked& one : all) runs.push_back(std::move(*one.run));
  return runs;
}

uint64_t num_unsearched(const std::map<uid_t, OwnedFolders>& owners) {
  uint64_t folders = 0;
  for (const auto& [owner, found] : owners)
    folders += found.folders - std::min(found.folders, kMaxFolders) +
               (found.entries >= kMaxEntries ? 1 : 0);
  return folders;
}

}  // namespace

std::vector<FoundRun> find_runs(const std::string& root, size_t max_runs,
                                uint64_t* maybe_unsearched) {
  constexpr int kMaxDepth = 3;
  std::map<uid_t, OwnedFolders> owners;
  std::deque<SearchedFolder> folders;  // level by level, so that deep directories come last
  if (const auto owner = owner_of_folder(root, 0))
    folders.push_back({.path = root, .name = "", .depth = 0, .owner = *owner});
  for (; !folders.empty(); folders.pop_front()) {
    const SearchedFolder folder = std::move(folders.front());
    OwnedFolders& of_owner = owners[folder.owner];
    if (add_run(folder, max_runs, of_owner) || folder.depth == kMaxDepth) continue;
    std::error_code error;
    for (fs::directory_iterator one(folder.path, error), end;
         !error && one != end && of_owner.entries < kMaxEntries; one.increment(error)) {
      ++of_owner.entries;
      std::error_code ignored;
      const std::string child = one->path().filename().string();
      if (!one->is_directory(ignored) || child.starts_with('.')) continue;
      const std::string path = join_path(folder.path, child);
      // Not a link, which can lead anywhere.
      const auto owner = owner_of_folder(path, AT_SYMLINK_NOFOLLOW);
      if (!owner || ++owners[*owner].folders > kMaxFolders) continue;
      folders.push_back({.path = path,
                         .name = folder.name.empty() ? child : folder.name + "/" + child,
                         .depth = folder.depth + 1,
                         .owner = *owner});
    }
  }
  if (maybe_unsearched != nullptr) *maybe_unsearched = num_unsearched(owners);
  return newest_runs(owners, max_runs);
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
  uint64_t bytes = 0;
  const auto is_result = [](const std::string& name) {
    return name.starts_with("step-") && name.ends_with(".json");
  };
  size_t i = names.ok() ? names->size() : 0;
  for (; i > 0 && evals.size() < kMaxEvals; --i) {
    const std::string& name = (*names)[i - 1];
    if (!is_result(name)) continue;
    if (visited.size() == run::kMaxListedResults || bytes > kBytesOfCall) break;
    visited.insert(name);
    CachedEval& cached = evals_[name];
    bytes += refresh(cached, name, /*with_details=*/false);
    const auto is_present = [&] {
      return cached.maybe_result &&
             lineage.contains(cached.maybe_result->step, cached.maybe_result->manifest_sha256);
    };
    if (is_present() && evals.empty())
      bytes += refresh(cached, name, /*with_details=*/true);
    else
      cached.remove_details();
    if (is_present()) evals.push_back(&*cached.maybe_result);
  }
  unread_evals_ =
      i == 0 ? 0
             : static_cast<uint64_t>(std::ranges::count_if(std::span(*names).first(i), is_result));
  std::erase_if(evals_, [&](const auto& entry) { return !visited.contains(entry.first); });
  std::ranges::reverse(evals);
  return evals;
}

uint64_t RunView::refresh(CachedEval& cached, const std::string& name, bool with_details) const {
  const std::string path = join_path(layout_.eval_dir(), name);
  const std::string stamp = file_stamp(path);
  if (cached.stamp == stamp && (cached.has_details || !with_details)) return 0;
  const auto text = read_file(path, kMaxEvalBytes);
  auto result = text.ok() ? run::parse_eval_result(*text, path) : text.status();
  cached = {.stamp = stamp, .maybe_result = {}, .has_details = true};
  if (result.ok() && run::has_few_names(*result)) cached.maybe_result = *std::move(result);
  return text.ok() ? text->size() : 0;
}

void RunView::CachedEval::remove_details() {
  has_details = false;
  if (maybe_result) (void)run::keep_metrics_only(*maybe_result);
}

RunSummary RunView::summary() const { return read_summary(layout_, name_); }

json::array RunView::read_checkpoints(json::object& environment) {
  const checkpoint::CheckpointStore store(layout_.checkpoints_dir(), default_file_system());
  const auto entries = store.list();
  json::array checkpoints;
  std::map<std::string, CachedManifest> manifests;
  const size_t count = entries.ok() ? entries->size() : 0;
  uint64_t bytes = 0;
  for (size_t i = count; i > 0 && count - i < kMaxCheckpoints && bytes <= kBytesOfCall; --i) {
    const checkpoint::CheckpointEntry& entry = (*entries)[i - 1];
    const std::string path = join_path(entry.path, checkpoint::kManifestName);
    CachedManifest manifest = manifests_[path];
    // Only the newest has an environment, whose texts can be long.
    const bool is_newest = checkpoints.empty();
    if (const std::string stamp = file_stamp(path);
        manifest.stamp != stamp || (is_newest && manifest.environment.empty())) {
      const auto text = read_file(path, checkpoint::kMaxManifestBytes);
      bytes += text.ok() ? text->size() : 0;
      const auto parsed = text.ok() ? checkpoint::parse_manifest(*text, path) : text.status();
      if (!parsed.ok()) continue;
      manifest = {.stamp = stamp,
                  .created = parsed->created_at.substr(0, kMaxTime),
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
    checkpoints.push_back(json::object{{"step", entry.step},
                                       {"created_at", manifest.created},
                                       {"bytes", manifest.bytes},
                                       {"manifest_sha256", manifest.sha256}});
    if (is_newest)
      environment = manifest.environment;
    else
      manifest.environment.clear();
    manifests[path] = std::move(manifest);
  }
  manifests_ = std::move(manifests);
  std::reverse(checkpoints.begin(), checkpoints.end());
  return checkpoints;
}

std::string RunView::overview() {
  const auto root_of_files = DirectoryRoot::open(layout_.root(), PathLinks::kOfAnyUser);
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
                                       {"resources", resources_json(eval->resources)},
                                       {"datasets", metrics_json(*eval)}});
  root["evaluations"] = std::move(evaluations);
  root["unread_evaluations"] = unread_evals_;
  root["metrics"] = metric_table_json(layout_);
  root["resources"] = resource_table_json();
  root["classes"] = evals.empty() ? nullptr : classes_json(*evals.back());

  json::object environment;
  root["checkpoints"] = read_checkpoints(environment);
  root["artifacts"] = artifacts_json(layout_);
  root["sample_errors"] = newest_objects(layout_.sample_errors_file(), kMaxSampleErrors);
  root["setting_changes"] = newest_objects(layout_.setting_changes_file(), kMaxSettingChanges);
  const auto config = read_file(layout_.config_file(), config::kMaxConfigBytes);
  root["config"] = config.ok() ? config::hide_secrets(valid_utf8(*config)) : "";
  // Before the log is read: a line can be in both, but in one at least.
  if (!maybe_tail_) (void)open_tail();
  const std::string log = read_end(layout_.trainer_log(), kEventBytes);
  root["log"] = last_lines(log, kLogLines, [](std::string_view) { return true; });
  root["events"] = last_lines(log, kMaxEvents, is_main_event);
  const json::array starts = last_lines(log, 1, [](std::string_view line) {
    return parse_logged_event(line).is("training started");
  });
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

void RunView::read_all_curves() {
  const auto root_of_files = DirectoryRoot::open(layout_.root(), PathLinks::kOfAnyUser);
  history_.refresh(kMaxCurveBytes);
}

std::string RunView::curves(size_t max_rows) {
  const auto root_of_files = DirectoryRoot::open(layout_.root(), PathLinks::kOfAnyUser);
  history_.refresh(kCurveBytes);
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
  const auto root_of_files = DirectoryRoot::open(layout_.root(), PathLinks::kOfAnyUser);
  std::string out;
  history_.refresh(kCurveBytes);
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
  const auto root_of_files = DirectoryRoot::open(layout_.root(), PathLinks::kOfAnyUser);
  const std::string path = join_path(layout_.eval_artifacts_dir(), name);
  std::string bytes = read_end(path, kMaxArtifactBytes + 1);
  if (bytes.empty() || bytes.size() > kMaxArtifactBytes) return missing;
  if (!parsed->kind.ends_with(".png"))
    return ArtifactFile{.content_type = "text/plain; charset=utf-8", .bytes = valid_utf8(bytes)};
  if (!is_small_png(bytes)) return missing;
  return ArtifactFile{.content_type = "image/png", .bytes = std::move(bytes)};
}

}  // namespace stoker::view
