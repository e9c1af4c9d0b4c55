// SpoolFolder: files that other programs rename into a folder, in the order of their names.
//
// A file must be complete when its name appears: write it under a name that starts with a dot, or in
// another folder of the file system, then rename it. Names that start with a dot and subfolders are
// ignored. The next file is always the one with the lowest name among those that are there and were
// not taken. A file ".end" ends the stream when all others were taken.
//
// A taken file remains until archive() moves it to the subfolder "done", when no checkpoint needs it
// any more. stoker deletes no file.
//
// Threads:  one at a time, except is_waiting(), which any thread may call.
// Blocking: next() until a file appears, the end, or a stop, which it notices within 100 ms.
// Errors:   kCancelled (stop), kNotFound, kPermission, kIoError; each names the folder.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::data::stream {

class SpoolFolder {
 public:
  static constexpr char kDone[] = "done";
  static constexpr char kEnd[] = ".end";

  // `taken`: names that a resumed run has taken before.
  static Result<SpoolFolder> open(std::string path, std::set<std::string> taken = {});

  // The path of the next file, which is then taken; nullopt at the end.
  Result<std::optional<std::string>> next(const std::stop_token& stop);
  // Names that were taken and are still in the folder, as of the last next().
  const std::set<std::string>& taken() const { return taken_; }
  bool is_waiting() const { return waiting_->load(std::memory_order_relaxed); }

  // Moves a file to the subfolder "done" of its folder, which is created. A file that is not there
  // any more is no error, because a crash can repeat the call.
  static Status archive(FileSystem& files, const std::string& path);

 private:
  SpoolFolder(std::string path, std::set<std::string> taken, UniqueFd inotify)
      : path_(std::move(path)), taken_(std::move(taken)), inotify_(std::move(inotify)) {}
  // Empty: none.
  Result<std::string> find_next();
  void wait();

  std::string path_;
  std::set<std::string> taken_;
  UniqueFd inotify_;  // invalid: polling only
  bool has_end_ = false;
  // Written by the thread that calls next(); no other data depends on it.
  std::unique_ptr<std::atomic<bool>> waiting_ = std::make_unique<std::atomic<bool>>(false);
};

}  // namespace stoker::data::stream
