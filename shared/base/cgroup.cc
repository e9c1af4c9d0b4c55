#include "shared/base/cgroup.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <thread>

namespace stoker {
namespace {

Cgroup make_cgroup(bool is_v2, const std::string& root, std::string path) {
  Cgroup group{.is_v2 = is_v2, .directories = {}};
  while (!path.empty() && path != "/") {
    group.directories.push_back(root + path);
    const size_t parent = path.rfind('/');
    if (parent == std::string::npos) break;
    path.erase(parent);
  }
  group.directories.push_back(root);
  return group;
}

// In cores; nothing without a quota.
std::optional<double> read_quota(const Cgroup& group, const std::string& directory) {
  int64_t quota = 0, period = 0;
  if (group.is_v2) {
    std::ifstream file(directory + "/cpu.max");  // "150000 100000", or "max 100000"
    if (!(file >> quota >> period)) return std::nullopt;
  } else {
    std::ifstream quota_file(directory + "/cpu.cfs_quota_us");  // -1: none
    std::ifstream period_file(directory + "/cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<double>(quota) / static_cast<double>(period);
}

}  // namespace

std::optional<Cgroup> find_cgroup(std::string_view controller, const std::string& cgroup_file,
                                  const std::string& mount) {
  std::ifstream file(cgroup_file);
  std::optional<Cgroup> found;
  for (std::string line; std::getline(file, line);) {
    // "4:cpu,cpuacct:/group", or "0::/group" for v2.
    const size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty())
      found = make_cgroup(/*is_v2=*/true, mount, path);
    else if (("," + controllers + ",").find("," + std::string(controller) + ",") !=
             std::string::npos)
      return make_cgroup(/*is_v2=*/false, mount + '/' + controllers, path);
  }
  return found;
}

std::optional<uint64_t> read_system_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

std::vector<int> allowed_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) {  // more cores than the mask has
    const auto count = static_cast<int>(std::thread::hardware_concurrency());
    for (int core = 0; core < count; ++core) cores.push_back(core);
    return cores;
  }
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  return cores;
}

int num_usable_cores(const std::optional<Cgroup>& group) {
  double cores = static_cast<double>(allowed_cores().size());
  if (group)
    for (const std::string& directory : group->directories)
      cores = std::min(cores, read_quota(*group, directory).value_or(cores));
  return std::max(1, static_cast<int>(std::floor(cores)));
}

}  // namespace stoker
