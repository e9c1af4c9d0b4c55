#include "shared/base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "shared/base/cgroup.h"

namespace stoker {
namespace {

// The number after `key` in a file of "key number" lines; 0 if there is none.
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

void limit_to(AvailableMemory& available, uint64_t bytes, const std::string& limit) {
  if (bytes < available.bytes) available = {.bytes = bytes, .limit = limit};
}

}  // namespace

AvailableMemory available_memory() {
  AvailableMemory available;
  if (const uint64_t kib = number_after("/proc/meminfo", "MemAvailable:"); kib > 0)
    limit_to(available, kib * 1024, "the machine's memory");
  const auto group = find_cgroup("memory");
  if (!group) return available;
  // memory.stat counts the page cache, which the kernel can reclaim.
  const char* const limit_file = group->is_v2 ? "/memory.max" : "/memory.limit_in_bytes";
  const char* const usage_file = group->is_v2 ? "/memory.current" : "/memory.usage_in_bytes";
  const char* const inactive = group->is_v2 ? "inactive_file" : "total_inactive_file";
  const char* const active = group->is_v2 ? "active_file" : "total_active_file";
  for (const std::string& directory : group->directories) {
    const auto limit = read_system_number(directory + limit_file);
    const auto usage = read_system_number(directory + usage_file);
    if (!limit || !usage) continue;
    const uint64_t cache = number_after(directory + "/memory.stat", inactive) +
                           number_after(directory + "/memory.stat", active);
    const uint64_t used = *usage - std::min(*usage, cache);
    limit_to(available, *limit - std::min(*limit, used), "memory cgroup " + directory);
  }
  return available;
}

}  // namespace stoker
