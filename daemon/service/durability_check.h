// durability_warnings: what a run directory's file system may not keep of what stoker takes for granted, as
// far as a look at the start can tell.
//
// Threads: any; no state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stoker::service {

struct FileSystemInfo {
  bool lock_is_seen = true;  // a flock that is held here refuses another one
  int64_t kind = 0;          // f_type of statfs()
};

// Of the file system that `held_lock` is on: the path of a file whose flock this process holds.
FileSystemInfo inspect_file_system(const std::string& held_lock);

// A line each, with what to do.
std::vector<std::string> durability_warnings(const FileSystemInfo& file_system);

}  // namespace stoker::service
