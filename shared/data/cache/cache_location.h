// CacheLocation: the path of a cache file of a dataset: next to the index of the run, or in the
// folder `cache.dir`, which all runs that read the same data share.
//
// In a shared folder, the file name contains a hash of the contents, so no run replaces a valid
// file that another one reads (shared_folder.h: who may create one, and who uses it).
//
// Threads:  a value.
// Blocking: lock() waits until the run that holds the lock releases it, and reports that to
//           `progress`, which may throw.
// Errors:   kIoError, kPermission, kNoSpace, kAlreadyExists (not a folder), naming the setting.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/data/cache/shared_folder.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/scan.h"

namespace stoker::data::cache {

class CacheLocation {
 public:
  // The dataset must have a `cache`. `content`: hex SHA-256 of everything that determines the
  // contents of the file.
  CacheLocation(const DatasetRequest& request, std::string_view field, std::string_view content);
  // A file of another kind, with this extension; `maybe_folder`: cache.dir.
  CacheLocation(const DatasetRequest& request, std::string_view field, std::string_view content,
                const std::string& extension, const std::optional<std::string>& maybe_folder);

  const std::string& path() const { return path_; }
  const std::string& key() const { return key_; }  // "data.train.cache.dir", for messages
  bool is_shared() const { return !folder_.empty(); }
  // For a shared folder: creates the folder if needed and locks it, so that several runs do not
  // create the same file. Leftovers of killed processes are removed. A lock that cannot be taken
  // is logged, and the result then holds none, as for a file next to the index, which belongs to
  // the run.
  Result<FileLock> lock(const files::ScanProgress& progress) const;

  // kNotFound; kPermission also for a file of a user who is not trusted.
  Result<UniqueFd> open(SharedFolder::Access access) const;
  // Creates the file, or replaces one next to the index. kAlreadyExists: in a shared folder another
  // run was faster, and its file was not changed.
  Status create(SharedFolder::Access access, const SharedFolder::Write& write) const;
  Status remove() const;

 private:
  std::string key_;     // of the setting, for messages
  std::string folder_;  // the shared folder, or empty
  std::string name_;    // in the shared folder
  std::string path_;
};

// Whether a file that an index names may be used: one in a shared folder can have been replaced by another user, with the
// size, time and inode of before.
bool is_trusted_file(const DatasetRequest& request, const std::string& path);

// The extension of a cache file: "packed", "packed_restart" or "decoded".
std::string cache_suffix(const config::CacheConfig& cache);

// Removes a cache file of another type that an earlier start created next to the index, unless the
// dataset still uses it.
void remove_unused_cache(const DatasetRequest& request, std::string_view field,
                         const config::CacheConfig& cache);

}  // namespace stoker::data::cache
