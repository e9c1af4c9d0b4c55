// ScanProgress: whom to tell, now and then, how far the scan of a data set is.
//
// Threads: called by the thread that scans.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "shared/base/glob.h"
#include "shared/base/status.h"
#include "shared/data/files/file_table.h"

namespace stoker::data::files {

class ScanProgress {
 public:
  using Listener = std::function<void(uint64_t count, std::string_view what)>;

  ScanProgress() = default;  // nobody
  template <typename Call>
  requires std::is_invocable_v<Call, uint64_t, std::string_view> ScanProgress(Call listener)
      : listener_(std::move(listener)) {}  // NOLINT: a lambda is the point

  // `count` things of this kind have been seen so far: "files", "rows", "MiB unpacked".
  void operator()(uint64_t count, std::string_view what = "files") const {
    if (listener_) listener_(count, what);
  }

 private:
  Listener listener_;
};

// scan: finds the files of a data set on disk.
//
// Blocking: one stat a file.
// Errors:   kNotFound, kPermission (a folder or a file that cannot be read), kInvalidArgument,
//           kIoError; each names the path. What is no regular file (FIFO, device, socket, dangling
//           link) and folders that lead back to one above them are left out, and their numbers
//           logged.
struct FolderScan {
  FileTable files;  // sorted as a tree: by name within each folder
  // The folders right below the root that were looked into and hold no file that matches, sorted.
  std::vector<std::string> barren;
};

Result<FolderScan> scan_folder(const std::string& root, const PathGlob& glob,
                               const ScanProgress& progress);

// One file, by its path; appended to `files`, whose root is empty.
Status scan_file(const std::string& path, FileTable& files);

Result<bool> is_folder(const std::string& path);

}  // namespace stoker::data::files
