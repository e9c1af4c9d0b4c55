// ScanProgress: callback that reports the progress of a dataset scan. It can throw ScanStopped to
// abort the scan.
//
// Threads: called by the scanning thread.
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

struct ScanStopped {};

class ScanProgress {
 public:
  static constexpr double kUnknown = -1;  // fraction
  using Listener = std::function<void(uint64_t count, std::string_view what, double fraction)>;

  ScanProgress() = default;  // no callback
  template <typename Call>
  requires std::is_invocable_v<Call, uint64_t, std::string_view, double> ScanProgress(Call listener)
      : listener_(std::move(listener)) {}  // NOLINT: implicit conversion from a lambda is intended
  template <typename Call>
  requires std::is_invocable_v<Call, uint64_t, std::string_view> ScanProgress(Call listener)
      : listener_([listener = std::move(listener)](uint64_t count, std::string_view what, double) {
          listener(count, what);
        }) {}  // NOLINT: likewise

  // `count`: number of `what` so far, such as "files", "rows" or "MiB unpacked"; `fraction`: of all, 0 to 1.
  void operator()(uint64_t count, std::string_view what = "files",
                  double fraction = kUnknown) const {
    if (listener_) listener_(count, what, fraction);
  }

 private:
  Listener listener_;
};

// scan_folder, scan_file: find the files of a dataset on disk.
//
// Blocking: one stat per file.
// Errors:   kNotFound, kPermission (a folder or file that cannot be read), kInvalidArgument,
//           kIoError; each names the path. Anything but regular files and folders (FIFO, device,
//           socket, dangling symlink), and folders that lead back to one of their parents, are
//           ignored; their numbers are logged.
struct FolderScan {
  FileTable files;  // sorted as a tree: by name within each folder
  // Folders directly below the root that were scanned and contain no matching file, sorted.
  std::vector<std::string> barren;
};

Result<FolderScan> scan_folder(const std::string& root, const PathGlob& glob,
                               const ScanProgress& progress);

// Appends one file, by its path, to `files`, whose root is empty.
Status scan_file(const std::string& path, FileTable& files);

Result<bool> is_folder(const std::string& path);

}  // namespace stoker::data::files
