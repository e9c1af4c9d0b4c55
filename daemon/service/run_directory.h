// RunDirectory: the run directory of a training process: subdirectories, lock and exit status.
//
// Threads:   one.
// Blocking:  for the disk.
// Ownership: holds the flock on LOCK until it is destroyed or the process ends for any reason.
// Errors:    kBusy (exit code 75): another stokerd trains here; names its process. kInvalidArgument
//            (exit code 78): the directory cannot be created or written, or others may write to it; names
//            path and user.
//            kNoSpace, kIoError (exit code 74). On failure at most LOCK and missing directories
//            have been created.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/directory_root.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/run/run_access.h"
#include "shared/run/run_layout.h"
#include "shared/run/run_state.h"

namespace stoker::service {

class RunDirectory {
 public:
  // Creates the directory, acquires the lock, creates the subdirectories, verifies that files can
  // be written, synced and renamed, sets exit_status.json aside and removes paused.json. `files` must
  // outlive this object. If the run has saved before, a missing checkpoints/ is not created.
  // `owner`: who may own it, and write to it.
  static Result<RunDirectory> open(const run::RunLayout& layout, Clock& clock,
                                   FileSystem& files = default_file_system(),
                                   run::RunOwner owner = run::RunOwner::kTrusted);

  // Creates missing subdirectories.
  Status make_folders();
  // The next two methods change nothing if the directory is gone or has been replaced by another
  // one: kNotFound.
  // `is_accepted`: whether the start was (run_state.h). If it was not, and there was a run before, this is not
  // the end of that run: its exit_status.json is put back, and last_start.json says how the start ended.
  Status save_exit_status(const run::ExitStatus& end, bool is_accepted);
  // Writes or removes paused.json if the state has changed, for programs that only see the
  // directory.
  Status publish_pause(const std::optional<run::PauseStatus>& maybe_pause);
  // Missing capabilities of the file system, for the log.
  const std::vector<std::string>& warnings() const { return warnings_; }
  const run::RunLayout& layout() const { return layout_; }

 private:
  RunDirectory(run::RunLayout layout, Clock& clock, FileSystem& files, DirectoryRoot root,
               FileLock lock)
      : layout_(std::move(layout)),
        clock_(&clock),
        files_(&files),
        root_(std::move(root)),
        lock_(std::move(lock)) {}
  Status test_writing();
  Status check_directory() const;

  run::RunLayout layout_;
  Clock* clock_;
  FileSystem* files_;
  DirectoryRoot root_;
  FileLock lock_;
  bool has_pause_file_ = false;
  std::vector<std::string> warnings_;
};

// What can be determined at start about missing durability guarantees of the file system of a run
// directory.
struct FileSystemInfo {
  bool has_working_locks = true;  // a flock held here is visible to other opens
  int64_t kind = 0;               // f_type of statfs()
};

// Inspects the file system of `held_lock`, the path of a file whose flock this process holds.
FileSystemInfo inspect_file_system(const std::string& held_lock);

// One line per warning, with a suggested fix.
std::vector<std::string> durability_warnings(const FileSystemInfo& file_system);

}  // namespace stoker::service
