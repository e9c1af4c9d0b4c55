// CacheLocation: where a file lies that `cache` keeps of a set: beside the run's index, or in the folder
// `cache.dir`, for all runs that read the same data.
//
// There its name says what it holds: what is found under it is the right one, and no run replaces what
// another one reads.
//
// Threads:  a value.
// Blocking: lock() waits for the run that has it, and tells `progress` so; that may throw.
// Errors:   of lock(): kIoError, kPermission, kNoSpace, kAlreadyExists (no folder), naming the setting.
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
  // Of the set's `cache`, which it has. `content`: hex SHA-256 of all that decides what the file holds.
  CacheLocation(const DatasetRequest& request, std::string_view field, std::string_view content);

  const std::string& path() const { return path_; }
  bool is_shared() const { return !folder_.empty(); }
  // Of a shared place: makes the folder where it is not there. While the lock lives, no other process
  // makes files in it; what one has left that was killed is removed. Of one beside the index, which is
  // the run's own, nothing.
  Result<FileLock> lock(const files::ScanProgress& progress) const;

 private:
  std::string key_;     // data.NAME.cache.dir, for messages
  std::string folder_;  // that is shared; or empty
  std::string path_;
};

// How the name of such a file ends: "packed", "packed_restart" or "decoded".
std::string cache_suffix(const config::CacheConfig& cache);

// Removes the file of another `cache` that a start before has left beside the run's index, unless the
// set keeps it there.
void remove_unused_cache(const DatasetRequest& request, std::string_view field,
                         const config::CacheConfig& cache);

}  // namespace stoker::data::cache
