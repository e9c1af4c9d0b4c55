#include "evaluator/cpu_pacer.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "shared/base/cgroup.h"

namespace stoker::evaluator {

using std::chrono::nanoseconds;

namespace {

// The number after `key` in cpu.stat of a group; 0 if there is none. In a container whose group is
// not mounted, that of the container.
int64_t read_cpu_stat(const Cgroup& group, std::string_view key) {
  std::ifstream file(group.directories.front() + "/cpu.stat");
  if (!file) file.open(group.directories.back() + "/cpu.stat");
  std::string word;
  for (int64_t number = 0; file >> word >> number;)
    if (word == key) return number;
  return 0;
}

std::string read_cgroup(const std::string& process) {
  std::ifstream file("/proc/" + process + "/cgroup");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

CpuTimes read_cpu_times() {
  std::ifstream file("/proc/thread-self/schedstat");
  int64_t run_time = 0;
  int64_t run_delay = 0;
  if (!(file >> run_time >> run_delay)) return {};
  return {.run_time = nanoseconds(run_time), .run_delay = nanoseconds(run_delay)};
}

nanoseconds read_throttled_time(const std::string& cgroup_file, const std::string& mount) {
  const auto group = find_cgroup("cpu", cgroup_file, mount);
  if (!group) return nanoseconds(0);
  if (group->is_v2) return std::chrono::microseconds(read_cpu_stat(*group, "throttled_usec"));
  return nanoseconds(read_cpu_stat(*group, "throttled_time"));
}

bool shares_cgroup(pid_t process) {
  const std::string own = read_cgroup("self");
  return !own.empty() && read_cgroup(std::to_string(process)) == own;
}

CpuPacer::CpuPacer(Clock& clock, Sleep sleep, std::function<CpuTimes()> cpu_times)
    : clock_(clock), sleep_(std::move(sleep)), cpu_times_(std::move(cpu_times)) {
  start_burst();
}

void CpuPacer::start_burst() {
  burst_start_ = clock_.monotonic();
  times_at_start_ = cpu_times_();
}

nanoseconds CpuPacer::pause_due() {
  const nanoseconds now = clock_.monotonic();
  const nanoseconds burst = now - burst_start_;
  if (burst < kMinBurst) return nanoseconds(0);
  burst_start_ = now;
  const CpuTimes before = std::exchange(times_at_start_, cpu_times_());
  const nanoseconds throttled = times_at_start_.throttled - before.throttled;
  const auto delayed = std::max(times_at_start_.run_delay - before.run_delay, nanoseconds(0));
  const nanoseconds waited = std::clamp(delayed - throttled, nanoseconds(0), delayed);
  const nanoseconds wanted = times_at_start_.run_time - before.run_time + waited;
  if (waited <= nanoseconds(0) || waited < wanted * kMinContention) return nanoseconds(0);
  // A thread that waits for a CPU does not slow training.
  const auto computed = std::max<nanoseconds>(burst - delayed, nanoseconds(0));
  return std::chrono::duration_cast<nanoseconds>(computed * (1 / kDutyCycle - 1));
}

nanoseconds CpuPacer::pause_if_due(const std::stop_token& stop,
                                   const std::function<bool()>& is_training) {
  const nanoseconds due = pause_due();
  if (due <= nanoseconds(0)) return nanoseconds(0);
  const nanoseconds start = clock_.monotonic();
  nanoseconds paused{0};
  while (paused < due && !stop.stop_requested() && is_training()) {
    sleep_(std::min<nanoseconds>(due - paused, kCheckInterval), stop);
    paused = clock_.monotonic() - start;
  }
  start_burst();
  return paused;
}

}  // namespace stoker::evaluator
