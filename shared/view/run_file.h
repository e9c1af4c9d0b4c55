// Opens the files of a run for programs that show many runs of others, without a DirectoryRoot for each: no
// link in the run directory is followed, which itself can be reached through links.
//
// Threads:  any.
// Blocking: file system calls; never for a FIFO or a device.
// Errors:   kNotFound, kPermission; kInvalidArgument: a link, or not a regular file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::view {

// A regular file, for reading. `path` is below `run_dir`, with it as its prefix, as in RunLayout.
// No component of it may be a link. Empty `run_dir`: any path, links are followed.
Result<UniqueFd> open_run_file(const std::string& run_dir, const std::string& path);
// The same for a directory.
Result<UniqueFd> open_run_directory(const std::string& run_dir, const std::string& path);

// As read_file() and list_directory().
Result<std::string> read_run_file(const std::string& run_dir, const std::string& path,
                                  uint64_t max_bytes);
// The last `max_bytes` bytes, from the beginning of a line if it is longer; empty: none.
std::string read_end_of_run_file(const std::string& run_dir, const std::string& path,
                                 uint64_t max_bytes);
Result<std::vector<std::string>> list_run_directory(const std::string& run_dir,
                                                    const std::string& path);

}  // namespace stoker::view
