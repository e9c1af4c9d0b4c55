// The control group of this process, v1 or v2, and the cores that it can use.
//
// Threads: pure functions of the system's files. Blocking: they read small files. Errors: what cannot
// be read does not limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stoker {

struct Cgroup {
  bool is_v2 = true;
  // The group's directory, then those of the groups above, whose limits apply as well; last that
  // of the mount. In a container the first ones may be missing, as the path can start above the mount.
  std::vector<std::string> directories;
};

// The group with `controller` ("cpu", "memory"): that of v1 if it has one for it, or that of v2.
std::optional<Cgroup> find_cgroup(std::string_view controller,
                                  const std::string& cgroup_file = "/proc/self/cgroup",
                                  const std::string& mount = "/sys/fs/cgroup");

// The number in a file of /proc or of a group; nullopt: it is missing, or "max".
std::optional<uint64_t> read_system_number(const std::string& path);

// The cores in the affinity mask of the calling thread, ascending.
std::vector<int> allowed_cores();

// How many cores this process can keep busy, at least 1: those of its affinity mask, limited by the
// CPU quota of its control group (cpu.max), rounded down. `group`: that of "cpu".
int num_usable_cores(const std::optional<Cgroup>& group = find_cgroup("cpu"));

}  // namespace stoker
