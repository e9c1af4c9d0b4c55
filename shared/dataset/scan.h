// scan: finds the files of a data set on disk.
//
// Blocking: one stat a file.
// Errors:   kNotFound, kPermission (a folder or a file that cannot be read), kInvalidArgument,
//           kIoError; each names the path. What is no regular file (FIFO, device, socket, dangling
//           link) and folders that lead back to one above them are left out, and their numbers
//           logged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/dataset/file_table.h"
#include "shared/dataset/glob.h"
#include "shared/dataset/scan_progress.h"

namespace stoker::dataset {

struct FolderScan {
  FileTable files;  // sorted as a tree: by name within each folder
  // The folders right below the root that were looked into and hold no file that matches, sorted.
  std::vector<std::string> barren;
};

Result<FolderScan> scan_folder(const std::string& root, const Glob& glob,
                               const ScanProgress& progress);

// One file, by its path; appended to `files`, whose root is empty.
Status scan_file(const std::string& path, FileTable& files);

Result<bool> is_folder(const std::string& path);

}  // namespace stoker::dataset
