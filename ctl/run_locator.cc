#include "ctl/run_locator.h"

#include <filesystem>

#include "ctl/number_format.h"

namespace stoker::ctl {
namespace {

// A copy of a run may lack its configuration and still have checkpoints to verify, or metrics.
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
                  "which run? the current directory is no run directory (no config.yaml in it); "
                  "give one: --run-dir DIR");
  }
  if (!std::filesystem::is_directory(run_dir, ignored)) {
    return Status(StatusCode::kNotFound,
                  printable(run_dir) + ": no such directory; give a run directory: --run-dir DIR");
  }
  std::string path = run_dir;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  run::RunLayout layout(path);
  if (!is_run_directory(layout)) {
    return Status(StatusCode::kNotFound,
                  printable(path) +
                      ": not a run directory (no config.yaml, checkpoints or metrics in it); it is "
                      "the one that stokerd was given as run.dir or --run-dir");
  }
  return layout;
}

std::string format_run_state(const run::RunState& state) {
  switch (state.phase) {
    case run::RunState::Phase::kRunning:
      return "stokerd is running";
    case run::RunState::Phase::kEnded:
      return printable(state.end->state) + " at step " + format_count(state.end->step) + ": " +
             printable(state.end->reason);
    case run::RunState::Phase::kCrashed:
      return "stokerd was killed or the machine went down; started again, it resumes from the "
             "newest checkpoint";
    case run::RunState::Phase::kAbsent:
      break;
  }
  return "no stokerd has run here yet";
}

}  // namespace stoker::ctl
