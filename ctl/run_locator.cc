#include "ctl/run_locator.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/base/readable_format.h"
#include "shared/base/utf8.h"
#include "shared/checkpoint/verify.h"
#include "shared/run/eval_result.h"
#include "shared/run/last_checkpoint.h"

namespace stoker::ctl {
namespace {

// A copy of a run can lack its configuration and still have checkpoints to verify or metrics to
// read.
bool is_run_directory(const run::RunLayout& layout) {
  std::error_code ignored;
  for (const std::string& path :
       {layout.config_file(), layout.checkpoints_dir(), layout.metrics_dir()})
    if (std::filesystem::exists(path, ignored)) return true;
  return false;
}

}  // namespace

Result<run::RunLayout> locate_run(const std::string& run_dir) {
  std::error_code ignored;
  if (run_dir.empty()) {
    const run::RunLayout here(".");
    if (std::filesystem::exists(here.config_file(), ignored)) return here;
    return Status(StatusCode::kInvalidArgument,
                  "the current directory is not a run directory (it has no config.yaml); "
                  "use --run-dir DIR");
  }
  if (!std::filesystem::is_directory(run_dir, ignored)) {
    return Status(StatusCode::kNotFound,
                  printable(run_dir) + ": no such directory; use --run-dir DIR");
  }
  std::string path = run_dir;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  run::RunLayout layout(path);
  if (::access(path.c_str(), R_OK | X_OK) != 0 && errno == EACCES) {
    return Status(StatusCode::kIoError,
                  printable(path) + ": permission denied; use sudo, or join its group");
  }
  if (!is_run_directory(layout)) {
    return Status(StatusCode::kNotFound,
                  printable(path) +
                      ": not a run directory (no config.yaml, checkpoints or metrics in it); use "
                      "the directory that stokerd was started with (run.dir or --run-dir)");
  }
  return layout;
}

namespace {

// A reason can have lines of details.
std::string one_line(const std::string& reason) {
  std::string text;
  for (size_t at = 0; at < reason.size(); ++at) {
    text += reason[at] == '\n' ? ' ' : reason[at];
    if (reason[at] == '\n') at = std::min(reason.find_first_not_of("\n ", at), reason.size()) - 1;
  }
  return printable(text);
}

std::string format_phase(const run::RunState& state) {
  switch (state.phase) {
    case run::RunState::Phase::kRunning:
      return "stokerd is running";
    case run::RunState::Phase::kEnded:
      return std::string(run::to_string(state.end->outcome)) + " at step " +
             format_count(state.end->step) + ": " + one_line(state.end->reason);
    case run::RunState::Phase::kPreempted:
      return "preempted at step " + format_count(state.end->step) + " (" +
             one_line(state.end->reason) + "): not ended, its launcher starts it again";
    case run::RunState::Phase::kCrashed:
      return "stokerd was killed or the machine crashed; after a restart it resumes from the "
             "newest checkpoint";
    case run::RunState::Phase::kAbsent:
      break;
  }
  return "stokerd has not run in this directory yet";
}

}  // namespace

std::string format_run_state(const run::RunState& state) {
  if (!state.last_start) return format_phase(state);
  const run::ExitStatus& end = state.last_start->end;
  return format_phase(state) + "; a start after that ended before training (" +
         printable(state.last_start->time) + ", exit code " + std::to_string(end.exit_code) +
         "): " + one_line(end.reason);
}

std::vector<RunningRank> find_running_ranks(const run::RunLayout& layout) {
  std::vector<RunningRank> ranks;
  const auto names = list_directory(std::filesystem::path(layout.rank_dir(0)).parent_path());
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
    int rank = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    const std::string lock = run::RunLayout(layout.rank_dir(rank)).lock_file();
    const auto locked = is_locked(lock);
    if (locked.ok() && *locked) ranks.push_back({.rank = rank, .task = run::task_in_lock(lock)});
  }
  std::ranges::sort(ranks, {}, &RunningRank::rank);
  return ranks;
}

namespace {

using checkpoint::CheckpointEntry;

constexpr size_t kMaxDigits = 18;

std::string recent_steps(const std::vector<CheckpointEntry>& entries) {
  constexpr size_t kShown = 8;
  std::string text;
  const size_t first = entries.size() - std::min(entries.size(), kShown);
  for (size_t i = first; i < entries.size(); ++i)
    text += (i == first ? (first > 0 ? "… " : "") : " ") + std::to_string(entries[i].step);
  return text;
}

// The checksum distinguishes the evaluated checkpoint from another one saved at the same step.
Result<CheckpointEntry> find_best_checkpoint(const run::RunLayout& layout,
                                             const std::vector<CheckpointEntry>& entries) {
  const auto best = run::read_best(layout);
  if (!best.ok() && best.status().code() == StatusCode::kNotFound)
    return Status(StatusCode::kNotFound,
                  layout.best_file() + ": no evaluation yet, so there is no best checkpoint");
  if (!best.ok()) return best.status();
  for (const CheckpointEntry& entry : entries) {
    if (entry.step != best->step) continue;
    const auto manifest =
        read_file(join_path(entry.path, "manifest.json"), checkpoint::kMaxManifestBytes);
    if (manifest.ok() && sha256_hex(*manifest) == best->manifest_sha256) return entry;
  }
  return Status(StatusCode::kNotFound,
                layout.checkpoints_dir() + ": the best checkpoint, of step " +
                    std::to_string(best->step) +
                    ", was deleted; available steps: " + recent_steps(entries));
}

}  // namespace

bool is_selector(const std::string& selector) {
  if (selector == "best" || selector == "latest") return true;
  return !selector.empty() && selector.size() <= kMaxDigits &&
         selector.find_first_not_of("0123456789") == std::string::npos;
}

std::string explain_no_checkpoint(const run::RunLayout& layout) {
  const auto last = run::read_last_checkpoint(layout.last_checkpoint_file());
  if (!last.ok()) return "now, and the last one is unknown: " + last.status().message();
  if (!*last) return "yet";
  return "now, but the run has saved step " + std::to_string((*last)->step) +
         "; mount or restore " + layout.checkpoints_dir();
}

Result<std::vector<CheckpointEntry>> all_checkpoints(const run::RunLayout& layout) {
  const checkpoint::CheckpointStore store(layout.checkpoints_dir(), default_file_system());
  STOKER_ASSIGN_OR_RETURN(auto entries, store.list());
  if (entries.empty())
    return Status(StatusCode::kNotFound,
                  store.directory() + ": no checkpoint " + explain_no_checkpoint(layout));
  return entries;
}

Result<CheckpointEntry> select_checkpoint(const run::RunLayout& layout,
                                          const std::string& selector) {
  STOKER_ASSIGN_OR_RETURN(const auto entries, all_checkpoints(layout));
  if (selector == "latest") return entries.back();
  if (selector == "best") return find_best_checkpoint(layout, entries);
  uint64_t step = 0;
  std::from_chars(selector.data(), selector.data() + selector.size(), step);
  const auto found = std::ranges::find(entries, step, &CheckpointEntry::step);
  if (found != entries.end()) return *found;
  return Status(StatusCode::kNotFound, layout.checkpoints_dir() + ": no checkpoint of step " +
                                           selector +
                                           "; available steps: " + recent_steps(entries));
}

uint64_t bytes_on_disk(const std::string& checkpoint_path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint_path, error)) {
    const uint64_t size = entry.file_size(error);
    if (!error) bytes += size;
  }
  return bytes;
}

}  // namespace stoker::ctl
