// CacheLocation: the path of a cache file of a dataset: next to the index of the run, or in the
// folder `cache.dir`, which all runs that read the same data share.
//
// In a shared folder, the file name contains a hash of the contents, so a file with that name is
// valid and no run replaces a file that another one reads.
//
// Threads:  a value.
// Blocking: lock() waits until the run that holds the lock releases it, and reports that to
//           `progress`, which may throw.
// Errors:   lock(): kIoError, kPermission, kNoSpace, kAlreadyExists (not a folder), naming the
//           setting.
#pragma once

#include <string>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/scan.h"

namespace stoker::data::cache {

class CacheLocation {
 public:
  // The dataset must have a `cache`. `content`: hex SHA-256 of everything that determines the
  // contents of the file.
  CacheLocation(const DatasetRequest& request, std::string_view field, std::string_view content);

  const std::string& path() const { return path_; }
  bool is_shared() const { return !folder_.empty(); }
  // For a shared folder: creates the folder if needed and locks it, so that no other process
  // creates files in it while the lock exists. Temporary files of killed processes are removed.
  // Does nothing for a file next to the index, which belongs to the run.
  Result<FileLock> lock(const files::ScanProgress& progress) const;

 private:
  std::string key_;     // data.NAME.cache.dir, for messages
  std::string folder_;  // the shared folder, or empty
  std::string path_;
};

// The extension of a cache file: "packed", "packed_restart" or "decoded".
std::string cache_suffix(const config::CacheConfig& cache);

// Removes a cache file of another type that an earlier start created next to the index, unless the
// dataset still uses it.
void remove_unused_cache(const DatasetRequest& request, std::string_view field,
                         const config::CacheConfig& cache);

}  // namespace stoker::data::cache
