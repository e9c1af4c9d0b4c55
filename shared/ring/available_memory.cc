#include "shared/ring/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace stoker::ring {
namespace {

std::optional<uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // missing, or "max"
}

// The number after `key` in a file of "key number" lines, 0 where it is not.
uint64_t number_after(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    uint64_t value = 0;
    if (words >> word && word == key && words >> value) return value;
  }
  return 0;
}

struct Hierarchy {
  std::string root;
  std::string group;  // "/system.slice/x"
  const char* limit;
  const char* usage;
  const char* inactive;  // names in memory.stat of what the kernel can give back at once
  const char* active;
};

std::optional<Hierarchy> find_hierarchy() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  std::optional<Hierarchy> found;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos)
      return Hierarchy{"/sys/fs/cgroup/memory", group,
                       "memory.limit_in_bytes", "memory.usage_in_bytes",
                       "total_inactive_file",   "total_active_file"};
    if (controllers == ",,")
      found = Hierarchy{"/sys/fs/cgroup", group,           "memory.max",
                        "memory.current", "inactive_file", "active_file"};
  }
  return found;
}

void narrow(AvailableMemory& available, uint64_t bytes, const std::string& limit) {
  if (bytes < available.bytes) available = {.bytes = bytes, .limit = limit};
}

}  // namespace

AvailableMemory available_memory() {
  AvailableMemory available;
  if (const uint64_t kib = number_after("/proc/meminfo", "MemAvailable:"); kib > 0)
    narrow(available, kib * 1024, "the machine's memory");
  const auto hierarchy = find_hierarchy();
  if (!hierarchy) return available;
  // A group's limit binds all below it; in a container the names may start above what is mounted,
  // so the root is looked at as well.
  std::string group = hierarchy->group;
  while (true) {
    const std::string folder = hierarchy->root + (group == "/" ? "" : group);
    const auto limit = read_number(folder + "/" + hierarchy->limit);
    const auto usage = read_number(folder + "/" + hierarchy->usage);
    if (limit && usage) {
      const uint64_t cache = number_after(folder + "/memory.stat", hierarchy->inactive) +
                             number_after(folder + "/memory.stat", hierarchy->active);
      const uint64_t used = *usage - std::min(*usage, cache);
      narrow(available, *limit - std::min(*limit, used), "memory cgroup " + folder);
    }
    if (group.empty() || group == "/") return available;
    group.erase(group.rfind('/'));
  }
}

}  // namespace stoker::ring
