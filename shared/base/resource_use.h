// ResourceUse: what a program uses of the machine: processor time, memory, bytes read and written. Each
// program measures itself; kResourceFields names the values for the records, the status, Prometheus,
// the page and the documentation.
//
// Threads:  measure_process() and measure_machine() from any thread; the others are values.
// Blocking: they read small files of the kernel.
// Errors:   what cannot be measured is NaN: a container can hide parts of /proc, and a value of a device
//           does not exist on the CPU.
#pragma once

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace stoker {

// ---- The table

enum class Resource : size_t {
  // Of the program that writes the record, over the time since the record before.
  kCpu,
  kRss,
  kRead,
  kWritten,
  // Of its worker processes together.
  kWorkerCpu,
  kWorkerRss,
  kWorkerRead,
  kWorkerWritten,
  kDeviceBusy,
  kDeviceAllocated,
  // Of the machine, all programs together.
  kMachineCpu,
  kDiskRead,
  kDiskWritten,
  kNetworkReceived,
  kNetworkSent,
  // Only in the status.
  kPeakRss,
  kDeviceReserved,
  kDevicePeakAllocated,
  kEnd
};
inline constexpr size_t kResources = static_cast<size_t>(Resource::kEnd);
inline constexpr size_t kRecordedResources = static_cast<size_t>(Resource::kPeakRss);
// The first ones: of a program and its workers.
inline constexpr size_t kProcessResources = static_cast<size_t>(Resource::kDeviceBusy);

struct ResourceField {
  std::string_view name;  // in records and in the status; with "stoker_" in Prometheus
  std::string_view
      unit;  // "cores", "bytes", "bytes/s", "fraction": values of one unit share a chart
  std::string_view label;  // in a chart; "program" stands for the one that wrote the record
  std::string_view help;
};
inline constexpr std::array<ResourceField, kResources> kResourceFields{{
    {"cpu_cores", "cores", "program", "Processor time of the program per second: cores kept busy"},
    {"rss_bytes", "bytes", "program", "Resident memory of the program"},
    {"read_bytes_per_second", "bytes/s", "program read",
     "Read by the program from storage, without what the page cache had"},
    {"written_bytes_per_second", "bytes/s", "program written",
     "Written by the program to storage, when the page cache took it"},
    {"worker_cpu_cores", "cores", "workers", "Processor time of the worker processes per second"},
    {"worker_rss_bytes", "bytes", "workers",
     "Resident memory of the worker processes; the ring and other shared memory counts in each"},
    {"worker_read_bytes_per_second", "bytes/s", "workers read",
     "Read by the worker processes from storage, without what the page cache had"},
    {"worker_written_bytes_per_second", "bytes/s", "workers written",
     "Written by the worker processes to storage"},
    {"device_busy", "fraction", "device",
     "Part of the time in which the device worked for the run"},
    {"device_allocated_bytes", "bytes", "device", "Device memory of tensors"},
    {"machine_cpu_cores", "cores", "machine",
     "Cores of the machine that were busy, by all programs"},
    {"machine_disk_read_bytes_per_second", "bytes/s", "disks read",
     "Read from the disks of the machine, by all programs"},
    {"machine_disk_written_bytes_per_second", "bytes/s", "disks written",
     "Written to the disks of the machine, by all programs"},
    {"machine_network_received_bytes_per_second", "bytes/s", "network received",
     "Received by the network interfaces of the machine, for all programs"},
    {"machine_network_sent_bytes_per_second", "bytes/s", "network sent",
     "Sent by the network interfaces of the machine, by all programs"},
    {"peak_rss_bytes", "bytes", "peak", "Maximum resident memory of the program since its start"},
    {"device_reserved_bytes", "bytes", "device reserved",
     "Device memory that LibTorch has reserved"},
    {"device_peak_allocated_bytes", "bytes", "device peak", "Maximum device memory of tensors"},
}};
bool is_resource(std::string_view name);

// ---- Values

class ResourceUse {
 public:
  ResourceUse() { values_.fill(std::numeric_limits<double>::quiet_NaN()); }
  double& operator[](Resource resource) { return values_[static_cast<size_t>(resource)]; }
  double operator[](Resource resource) const { return values_[static_cast<size_t>(resource)]; }
  // In the order of kResourceFields.
  std::array<double, kResources>& values() { return values_; }
  const std::array<double, kResources>& values() const { return values_; }

 private:
  std::array<double, kResources> values_;  // NaN: not known
};

// ---- Measuring

inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

// Of a process, since its start.
struct ProcessUse {
  double cpu_seconds = kNotMeasured;  // of all threads, in user and kernel mode
  double rss_bytes = kNotMeasured;
  double peak_rss_bytes = kNotMeasured;
  double read_bytes = kNotMeasured;
  double written_bytes = kNotMeasured;
};
// Of both together; what is not known of one is that of the other.
ProcessUse operator+(const ProcessUse& one, const ProcessUse& other);
// The first call opens files that a process without PR_SET_DUMPABLE cannot open.
ProcessUse measure_process();

// Since the start of the machine.
struct MachineUse {
  double cpu_seconds = kNotMeasured;
  double disk_read_bytes = kNotMeasured;  // of whole disks: a partition or a volume is part of one
  double disk_written_bytes = kNotMeasured;
  double received_bytes =
      kNotMeasured;  // of hardware; if there is none, as in a container, all but lo
  double sent_bytes = kNotMeasured;
};
MachineUse measure_machine(const std::string& proc = "/proc", const std::string& sys = "/sys");

// ResourceMeter: the use between two measurements. One thread.
class ResourceMeter {
 public:
  // What a record needs, at most: with records every few milliseconds, measuring would cost more
  // than it tells.
  static constexpr std::chrono::seconds kInterval{1};

  struct Totals {
    ProcessUse own = {};
    ProcessUse workers = {};
    MachineUse machine = {};
  };
  // From the totals before and after `seconds`. A total that has become smaller is that of another process.
  static ResourceUse rates(const Totals& before, const Totals& after, double seconds);

  // `workers`: their sum. `now`: of Clock::monotonic().
  void begin(std::chrono::nanoseconds now, const ProcessUse& workers = {});
  bool is_due(std::chrono::nanoseconds now) const { return now - measured_ >= kInterval; }
  // Since the call before, or begin().
  ResourceUse measure(std::chrono::nanoseconds now, const ProcessUse& workers = {});

 private:
  std::chrono::nanoseconds measured_{0};
  Totals totals_;
};

}  // namespace stoker
