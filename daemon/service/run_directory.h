// RunDirectory: the run directory while this process trains in it: folders, lock, and how it ended.
//
// Threads:  one.
// Blocking: for the disk.
// Owner:    holds the flock on LOCK until it is destroyed or the process dies, however it dies.
// Errors:   kBusy (exit 75): another stokerd trains here; names its process. kInvalidArgument (exit
//           78): the directory cannot be made or written; names path and user. kNoSpace, kIoError
//           (exit 74). Only LOCK and missing folders have been made then.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/run/run_layout.h"
#include "shared/run/run_state.h"

namespace stoker::service {

class RunDirectory {
 public:
  // Makes the directory, takes the lock, makes the folders, proves that files can be written,
  // synced and renamed, and removes exit_status.json and paused.json. `files` must outlive this object.
  static Result<RunDirectory> open(const run::RunLayout& layout, Clock& clock,
                                   FileSystem& files = default_file_system());

  // Those that are missing.
  Status make_folders();
  // These two leave the place alone where the directory is no more, or another one is: kNotFound.
  Status save_exit_status(const run::ExitStatus& end);
  // Writes paused.json, or removes it, where that changes something: for those who only see the
  // directory.
  Status publish_pause(const std::optional<run::PauseStatus>& maybe_pause);
  // What its file system may not do, for the log.
  const std::vector<std::string>& warnings() const { return warnings_; }
  const run::RunLayout& layout() const { return layout_; }

 private:
  RunDirectory(run::RunLayout layout, FileSystem& files, FileLock lock)
      : layout_(std::move(layout)), files_(&files), lock_(std::move(lock)) {}
  Status test_writing();
  Status check_directory() const;

  run::RunLayout layout_;
  FileSystem* files_;
  FileLock lock_;
  bool has_pause_file_ = false;
  std::vector<std::string> warnings_;
};

// What a run directory's file system may not keep of what stoker takes for granted, as far as a look at
// the start can tell.
struct FileSystemInfo {
  bool lock_is_seen = true;  // a flock that is held here refuses another one
  int64_t kind = 0;          // f_type of statfs()
};

// Of the file system that `held_lock` is on: the path of a file whose flock this process holds.
FileSystemInfo inspect_file_system(const std::string& held_lock);

// A line each, with what to do.
std::vector<std::string> durability_warnings(const FileSystemInfo& file_system);

}  // namespace stoker::service
