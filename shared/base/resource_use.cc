#include "shared/base/resource_use.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "shared/base/file.h"

namespace stoker {
namespace {

constexpr double kSectorBytes = 512;  // of /proc/diskstats, whatever that of the disk is

// Of "Name:   123 kB" lines.
double value_after(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return kNotMeasured;
  text.remove_prefix(at + name.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? static_cast<double>(value) : kNotMeasured;
}

// A file of the kernel that stays open.
class KernelFile {
 public:
  explicit KernelFile(const char* path) : fd_(::open(path, O_RDONLY | O_CLOEXEC)) {}
  // The beginning, in `memory`.
  std::string_view read(std::span<char> memory) const {
    const ssize_t bytes = fd_.valid() ? ::pread(fd_.get(), memory.data(), memory.size(), 0) : 0;
    return {memory.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
  }

 private:
  UniqueFd fd_;
};

std::string read_kernel_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// All but idle and iowait; guests are part of user and nice.
double busy_seconds(const std::string& stat) {
  std::istringstream line(stat.substr(0, stat.find('\n')));
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, softirq = 0, stolen = 0;
  if (!(line >> name >> user >> nice >> system >> idle >> waiting >> irq >> softirq >> stolen) ||
      name != "cpu")
    return kNotMeasured;
  return (user + nice + system + irq + softirq + stolen) /
         static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// Loop devices, RAM disks, device mapper and RAID pass on to other disks, or to memory.
bool is_disk(const std::string& name, const std::string& sys) {
  for (const std::string_view other : {"loop", "ram", "zram", "dm-", "md"})
    if (name.starts_with(other)) return false;
  return exists(join_path(sys, "block/" + name));  // partitions are below their disk
}

void add_disks(const std::string& diskstats, const std::string& sys, MachineUse& use) {
  std::istringstream lines(diskstats);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string major, minor, name;
    double reads = 0, merged = 0, read = 0, ms = 0, writes = 0, merged_writes = 0, written = 0;
    if (!(fields >> major >> minor >> name >> reads >> merged >> read >> ms >> writes >>
          merged_writes >> written) ||
        !is_disk(name, sys))
      continue;
    if (std::isnan(use.disk_read_bytes)) use.disk_read_bytes = use.disk_written_bytes = 0;
    use.disk_read_bytes += kSectorBytes * read;
    use.disk_written_bytes += kSectorBytes * written;
  }
}

void add_interfaces(const std::string& dev, const std::string& sys, MachineUse& use) {
  struct Interface {
    bool is_hardware = false;
    double received = 0, sent = 0;
  };
  std::vector<Interface> all;
  std::istringstream lines(dev);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon);
    name.erase(0, std::min(name.find_first_not_of(' '), name.size()));
    std::istringstream fields(line.substr(colon + 1));
    Interface one;
    double skipped = 0;
    fields >> one.received;
    for (int i = 0; i < 7; ++i) fields >> skipped;
    if (!(fields >> one.sent) || name == "lo") continue;
    one.is_hardware = exists(join_path(sys, "class/net/" + name + "/device"));
    all.push_back(one);
  }
  const bool has_hardware = std::ranges::any_of(all, &Interface::is_hardware);
  for (const Interface& one : all) {
    if (one.is_hardware != has_hardware) continue;
    if (std::isnan(use.received_bytes)) use.received_bytes = use.sent_bytes = 0;
    use.received_bytes += one.received;
    use.sent_bytes += one.sent;
  }
}

}  // namespace

bool is_resource(std::string_view name) {
  return std::ranges::find(kResourceFields, name, &ResourceField::name) != kResourceFields.end();
}

ProcessUse operator+(const ProcessUse& one, const ProcessUse& other) {
  const auto sum = [](double a, double b) { return std::isnan(a) ? b : std::isnan(b) ? a : a + b; };
  return {.cpu_seconds = sum(one.cpu_seconds, other.cpu_seconds),
          .rss_bytes = sum(one.rss_bytes, other.rss_bytes),
          .peak_rss_bytes = sum(one.peak_rss_bytes, other.peak_rss_bytes),
          .read_bytes = sum(one.read_bytes, other.read_bytes),
          .written_bytes = sum(one.written_bytes, other.written_bytes)};
}

ProcessUse measure_process() {
  static const KernelFile status("/proc/self/status"), io("/proc/self/io");
  ProcessUse use;
  timespec cpu{};
  if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0)
    use.cpu_seconds = static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec);
  std::array<char, 4096> text;
  const std::string_view memory = status.read(text);
  use.rss_bytes = 1024 * value_after(memory, "VmRSS:");
  use.peak_rss_bytes = 1024 * value_after(memory, "VmHWM:");
  const std::string_view transferred = io.read(text);
  use.read_bytes = value_after(transferred, "\nread_bytes:");
  use.written_bytes = value_after(transferred, "\nwrite_bytes:");
  return use;
}

MachineUse measure_machine(const std::string& proc, const std::string& sys) {
  MachineUse use;
  use.cpu_seconds = busy_seconds(read_kernel_file(join_path(proc, "stat")));
  add_disks(read_kernel_file(join_path(proc, "diskstats")), sys, use);
  add_interfaces(read_kernel_file(join_path(proc, "net/dev")), sys, use);
  return use;
}

ResourceUse ResourceMeter::rates(const Totals& before, const Totals& after, double seconds) {
  // NaN if one of them is: then std::max() returns its first argument.
  const auto rate = [seconds](double first, double last) {
    return seconds > 0 ? std::max(last - first, 0.0) / seconds : kNotMeasured;
  };
  ResourceUse use;
  const auto add = [&](const ProcessUse& first, const ProcessUse& last, Resource cpu, Resource rss,
                       Resource read, Resource written) {
    use[cpu] = rate(first.cpu_seconds, last.cpu_seconds);
    use[rss] = last.rss_bytes;
    use[read] = rate(first.read_bytes, last.read_bytes);
    use[written] = rate(first.written_bytes, last.written_bytes);
  };
  add(before.own, after.own, Resource::kCpu, Resource::kRss, Resource::kRead, Resource::kWritten);
  add(before.workers, after.workers, Resource::kWorkerCpu, Resource::kWorkerRss,
      Resource::kWorkerRead, Resource::kWorkerWritten);
  use[Resource::kPeakRss] = after.own.peak_rss_bytes;
  const MachineUse &first = before.machine, &last = after.machine;
  use[Resource::kMachineCpu] = rate(first.cpu_seconds, last.cpu_seconds);
  use[Resource::kDiskRead] = rate(first.disk_read_bytes, last.disk_read_bytes);
  use[Resource::kDiskWritten] = rate(first.disk_written_bytes, last.disk_written_bytes);
  use[Resource::kNetworkReceived] = rate(first.received_bytes, last.received_bytes);
  use[Resource::kNetworkSent] = rate(first.sent_bytes, last.sent_bytes);
  return use;
}

void ResourceMeter::begin(std::chrono::nanoseconds now, const ProcessUse& workers) {
  measured_ = now;
  totals_ = {.own = measure_process(), .workers = workers, .machine = measure_machine()};
}

ResourceUse ResourceMeter::measure(std::chrono::nanoseconds now, const ProcessUse& workers) {
  const Totals before = totals_;
  const double seconds = std::chrono::duration<double>(now - measured_).count();
  begin(now, workers);
  return rates(before, totals_, seconds);
}

}  // namespace stoker
