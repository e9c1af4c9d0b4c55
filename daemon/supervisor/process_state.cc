#include "daemon/supervisor/process_state.h"

#include <time.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace stoker::supervisor {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

std::string describe_process_state(const std::string& stat, const std::string& wait_channel) {
  // "PID (NAME) STATE …", and the name may hold anything.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return "";
  const std::string where =
      wait_channel.empty() || wait_channel == "0" ? "" : " in " + wait_channel;
  switch (stat[name_end + 2]) {
    case 'R':
      return "running";
    case 'S':
      return "asleep" + where;
    case 'D':
      return "in uninterruptible sleep (D)" + where;
    case 'T':
      return "stopped";
    case 't':
      return "stopped by a debugger";
    case 'Z':
      return "ended";
    default:
      return std::string("in state ") + stat[name_end + 2];
  }
}

std::string process_state(pid_t pid) {
  // Most threads of a process that hangs wait for the one that does: the more telling state counts.
  const std::string telling = "ZSRtTD";
  size_t max = 0;
  std::string state;
  std::error_code error;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
    const std::string stat = read_text(thread.path() / "stat");
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || name_end + 2 >= stat.size()) continue;
    const size_t rank = telling.find(stat[name_end + 2]);
    if (rank == std::string::npos || (!state.empty() && rank <= max)) continue;
    max = rank;
    state = describe_process_state(stat, read_text(thread.path() / "wchan"));
  }
  return state;
}

std::chrono::nanoseconds cpu_time(pid_t pid) {
  clockid_t clock{};
  timespec spent{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &spent) != 0) return {};
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

}  // namespace stoker::supervisor
