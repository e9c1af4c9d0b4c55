#include "daemon/group/core_share.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <string_view>

#include "daemon/group/socket_address.h"
#include "shared/base/cgroup.h"
#include "shared/base/file.h"

namespace stoker::group {
namespace {

constexpr int kMaxCore = CPU_SETSIZE;
constexpr uint64_t kMaxListBytes = 64 << 10;

bool parse_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > kMaxCore) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

// "0-3,8", as the kernel writes it; empty if it is not such a list.
std::vector<int> parse_cores(std::string_view text) {
  std::vector<int> cores;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  while (!text.empty()) {
    int first = 0;
    if (!parse_number(text, first)) return {};
    int last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      if (!parse_number(text, last)) return {};
    }
    for (int core = first; core <= last; ++core) cores.push_back(core);
    if (text.empty()) break;
    if (!text.starts_with(',')) return {};
    text.remove_prefix(1);
  }
  std::ranges::sort(cores);
  return cores;
}

bool overlap(const std::vector<int>& left, const std::vector<int>& right) {
  return std::ranges::any_of(
      left, [&right](int core) { return std::ranges::binary_search(right, core); });
}

}  // namespace

AllowedCores read_allowed_cores() { return {.host = host_name(), .cores = allowed_cores()}; }

std::string format_cores(const std::vector<int>& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t end = i + 1;
    while (end < cores.size() && cores[end] == cores[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(cores[i]);
    if (end - i > 1) text += '-' + std::to_string(cores[end - 1]);
    i = end;
  }
  return text;
}

std::string to_text(const AllowedCores& allowed) {
  return allowed.host + ' ' + format_cores(allowed.cores);
}

AllowedCores parse_allowed_cores(const std::string& text) {
  const size_t space = text.rfind(' ');
  if (space == std::string::npos) return {.host = text, .cores = {}};
  return {.host = text.substr(0, space),
          .cores = parse_cores(std::string_view(text).substr(space + 1))};
}

int share_cores(const std::vector<AllowedCores>& ranks) {
  std::map<std::string, std::vector<const AllowedCores*>> hosts;
  for (const AllowedCores& rank : ranks) hosts[rank.host].push_back(&rank);
  size_t smallest = SIZE_MAX;
  for (const AllowedCores& rank : ranks) {
    if (rank.cores.empty()) continue;
    const auto sharing = static_cast<size_t>(std::ranges::count_if(
        hosts[rank.host],
        [&rank](const AllowedCores* other) { return overlap(other->cores, rank.cores); }));
    smallest = std::min(smallest, rank.cores.size() / sharing);
  }
  return smallest == SIZE_MAX ? 1 : static_cast<int>(std::max<size_t>(1, smallest));
}

std::string numa_nodes_of(const std::vector<int>& cores, const std::string& nodes_directory) {
  const auto online = read_file(nodes_directory + "/online", kMaxListBytes);
  if (!online.ok()) return "";
  std::vector<int> nodes;
  for (const int node : parse_cores(*online)) {
    const auto list =
        read_file(nodes_directory + "/node" + std::to_string(node) + "/cpulist", kMaxListBytes);
    if (list.ok() && overlap(parse_cores(*list), cores)) nodes.push_back(node);
  }
  return format_cores(nodes);
}

}  // namespace stoker::group
