// The cores that the ranks of a group use: those that their launcher allows each of them. A launcher
// binds each rank to other cores, or lets all ranks of a node use the same ones.
//
// Threads: pure functions, except read_allowed_cores().
#pragma once

#include <string>
#include <vector>

namespace stoker::group {

struct AllowedCores {
  std::string host;
  std::vector<int> cores;  // ascending

  bool operator==(const AllowedCores&) const = default;
};

// Those of this process.
AllowedCores read_allowed_cores();

// "host 0-3,8", for the store.
std::string to_text(const AllowedCores& allowed);
// Without cores if it is not such a text.
AllowedCores parse_allowed_cores(const std::string& text);
std::string format_cores(const std::vector<int>& cores);  // "0-3,8"

// Threads for each rank, the same on all, so that all compute with the same kernels: the smallest
// share of any rank in its cores, at least 1.
int share_cores(const std::vector<AllowedCores>& ranks);

// The NUMA nodes of the cores: "0", "0-1"; empty if the system does not tell. `nodes_directory`:
// /sys/devices/system/node.
std::string numa_nodes_of(const std::vector<int>& cores, const std::string& nodes_directory);

}  // namespace stoker::group
