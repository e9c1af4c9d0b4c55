// Discarding directories that are out of sight: .tmp-… and .trash-….
//
// Threads: as CheckpointStore::commit().
// Errors:  kIoError, kPermission; what is left stays out of sight.
// Crash:   a directory keeps all of its files until the name that hides it is on the disk. Otherwise
//          a power cut could bring it back under its old name, with half of its files.
#pragma once

#include <string>
#include <vector>

#include "shared/base/file.h"

namespace stoker::checkpoint {

Status delete_directory(FileSystem& files, const std::string& directory,
                        const std::vector<std::string>& hidden_names);

}  // namespace stoker::checkpoint
