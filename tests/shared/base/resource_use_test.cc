#include "shared/base/resource_use.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::Ge;
using ::testing::Le;

constexpr double kMib = 1 << 20;

double rusage_seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double cpu_by_getrusage() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  return rusage_seconds(use.ru_utime) + rusage_seconds(use.ru_stime);
}

double field_of(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;)
    if (double value = 0; word == name && file >> value) return value;
  return -1;
}

double resident_by_statm() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

TEST(ProcessUseTest, MeasuresCpuTimeAsGetrusageDoes) {
  const double start = cpu_by_getrusage();
  volatile double sum = 0;
  while (cpu_by_getrusage() < start + 0.05) sum = sum + 1;
  constexpr double kTick = 0.01;
  const double before = cpu_by_getrusage();
  const double measured = measure_process().cpu_seconds;
  EXPECT_THAT(measured, AllOf(Ge(before - kTick), Le(cpu_by_getrusage() + kTick)));
}

TEST(ProcessUseTest, MeasuresResidentMemoryAsStatmDoes) {
  const std::vector<char> used(size_t{64} << 20, 'x');
  const ProcessUse use = measure_process();
  // The kernel counts per thread, and adds up late.
  EXPECT_THAT(use.rss_bytes, DoubleNear(resident_by_statm(), 4 * kMib));
  EXPECT_GE(use.rss_bytes, 64 * kMib);
  EXPECT_GE(use.peak_rss_bytes, use.rss_bytes);
  EXPECT_EQ(used.back(), 'x');
}

TEST(ProcessUseTest, MeasuresBytesAsProcDoes) {
  // -1: a kernel that does not count them.
  const auto known = [](double bytes) { return std::isnan(bytes) ? -1 : bytes; };
  const auto read = [] { return field_of("/proc/self/io", "read_bytes:"); };
  const auto written = [] { return field_of("/proc/self/io", "write_bytes:"); };
  const test::TemporaryDirectory folder;
  const double written_before = written();
  EXPECT_EQ(known(measure_process().written_bytes), written_before);
  test::write_whole(folder / "file", std::string(size_t{8} << 20, 'x'));
  const ProcessUse use = measure_process();
  EXPECT_EQ(known(use.written_bytes), written());
  EXPECT_EQ(known(use.read_bytes), read());
  EXPECT_GE(written(), written_before);
}

// A machine of whose files the values follow by hand.
class MachineUseTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path(folder_.path() + "/" + name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  MachineUse measure() const {
    return measure_machine(folder_.path() + "/proc", folder_.path() + "/sys");
  }
  const test::TemporaryDirectory folder_;
};

TEST_F(MachineUseTest, CountsBusyTimeWithoutIdleAndIowait) {
  // user nice system idle iowait irq softirq steal guest guest_nice
  write("proc/stat", "cpu  100 20 30 4000 5000 6 7 8 90 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_DOUBLE_EQ(measure().cpu_seconds, (100 + 20 + 30 + 6 + 7 + 8) / ticks);
}

TEST_F(MachineUseTest, CountsEachDiskOnce) {
  write("proc/diskstats",
        "   8       0 sda 10 1 100 5 20 2 300 6 0 7 8 0 0 0 0 0 0\n"
        "   8       1 sda1 10 1 100 5 20 2 300 6 0 7 8 0 0 0 0 0 0\n"
        "   7       0 loop0 10 1 100 5 20 2 300 6 0 7 8 0 0 0 0 0 0\n"
        " 253       0 dm-0 10 1 100 5 20 2 300 6 0 7 8 0 0 0 0 0 0\n"
        " 259       0 nvme0n1 10 1 7 5 20 2 9 6 0 7 8\n");
  for (const char* const disk : {"sda", "loop0", "dm-0", "nvme0n1"})
    write("sys/block/" + std::string(disk) + "/stat", "");
  EXPECT_EQ(measure().disk_read_bytes, 512 * (100 + 7));
  EXPECT_EQ(measure().disk_written_bytes, 512 * (300 + 9));
}

TEST_F(MachineUseTest, CountsInterfacesOfHardware) {
  constexpr const char* kHead =
      "Inter-|   Receive  |  Transmit\n face |bytes packets errs|bytes packets\n";
  const auto line = [](const std::string& name, int received, int sent) {
    return "  " + name + ":" + std::to_string(received) + " 1 2 3 4 5 6 7 " + std::to_string(sent) +
           " 1 2 3 4 5 6 7\n";
  };
  write("proc/net/dev", kHead + line("lo", 1000, 1000) + line("eth0", 20, 5) +
                            line("eth1", 300, 60) + line("docker0", 7, 7));
  EXPECT_EQ(measure().received_bytes, 327) << "as in a container";
  EXPECT_EQ(measure().sent_bytes, 72);
  write("sys/class/net/eth0/device/vendor", "");
  write("sys/class/net/eth1/device/vendor", "");
  EXPECT_EQ(measure().received_bytes, 320);
  EXPECT_EQ(measure().sent_bytes, 65);
}

TEST_F(MachineUseTest, KnowsNothingWithoutFiles) {
  const MachineUse use = measure();
  for (const double value : {use.cpu_seconds, use.disk_read_bytes, use.disk_written_bytes,
                             use.received_bytes, use.sent_bytes})
    EXPECT_TRUE(std::isnan(value));
}

// The same counters from the files that the kernel has for each device.
double sum_of_disks() {
  double sectors = 0;
  std::error_code error;
  for (const auto& disk : std::filesystem::directory_iterator("/sys/block", error)) {
    const std::string name = disk.path().filename();
    const bool is_other = name.starts_with("loop") || name.starts_with("ram") ||
                          name.starts_with("zram") || name.starts_with("dm-") ||
                          name.starts_with("md");
    std::ifstream values(disk.path() / "stat");
    double value = 0;
    for (int i = 0; i < 7; ++i) values >> value;
    sectors += is_other ? 0 : value;
  }
  return 512 * sectors;
}

double sum_of_interfaces() {
  double hardware = 0, others = 0;
  bool has_hardware = false;
  std::error_code error;
  for (const auto& interface : std::filesystem::directory_iterator("/sys/class/net", error)) {
    if (interface.path().filename() == "lo") continue;
    std::ifstream file(interface.path() / "statistics/rx_bytes");
    double bytes = 0;
    file >> bytes;
    const bool is_hardware = std::filesystem::exists(interface.path() / "device");
    has_hardware = has_hardware || is_hardware;
    (is_hardware ? hardware : others) += bytes;
  }
  return has_hardware ? hardware : others;
}

TEST(OwnMachineUseTest, AgreesWithFilesOfEachDevice) {
  const auto known = [](double bytes) { return std::isnan(bytes) ? 0 : bytes; };
  const double disks = sum_of_disks(), received = sum_of_interfaces();
  const MachineUse use = measure_machine();
  EXPECT_THAT(known(use.disk_written_bytes), AllOf(Ge(disks), Le(sum_of_disks())));
  EXPECT_THAT(known(use.received_bytes), AllOf(Ge(received), Le(sum_of_interfaces())));
  EXPECT_GT(use.cpu_seconds, 0);
}

TEST(ResourceMeterTest, DividesDifferencesByTime) {
  const ResourceMeter::Totals before{
      .own = {.cpu_seconds = 10, .rss_bytes = 5, .read_bytes = 100, .written_bytes = 8},
      .workers = {.cpu_seconds = 3, .rss_bytes = 7, .read_bytes = 9, .written_bytes = 50},
      .machine = {.cpu_seconds = 100,
                  .disk_read_bytes = 1000,
                  .disk_written_bytes = 2000,
                  .received_bytes = 30,
                  .sent_bytes = 40}};
  const ResourceMeter::Totals after{
      .own = {.cpu_seconds = 13,
              .rss_bytes = 6,
              .peak_rss_bytes = 9,
              .read_bytes = 300,
              .written_bytes = 8},
      .workers = {.cpu_seconds = 4, .rss_bytes = 8, .read_bytes = 9, .written_bytes = 10},
      .machine = {.cpu_seconds = 107,
                  .disk_read_bytes = 1600,
                  .disk_written_bytes = 2002,
                  .received_bytes = 34,
                  .sent_bytes = 50}};
  const ResourceUse use = ResourceMeter::rates(before, after, 2);
  EXPECT_EQ(use[Resource::kCpu], 1.5);
  EXPECT_EQ(use[Resource::kRss], 6);
  EXPECT_EQ(use[Resource::kPeakRss], 9);
  EXPECT_EQ(use[Resource::kRead], 100);
  EXPECT_EQ(use[Resource::kWritten], 0);
  EXPECT_EQ(use[Resource::kWorkerCpu], 0.5);
  EXPECT_EQ(use[Resource::kWorkerRss], 8);
  EXPECT_EQ(use[Resource::kWorkerRead], 0);
  EXPECT_EQ(use[Resource::kWorkerWritten], 0) << "the total of another process";
  EXPECT_EQ(use[Resource::kMachineCpu], 3.5);
  EXPECT_EQ(use[Resource::kDiskRead], 300);
  EXPECT_EQ(use[Resource::kDiskWritten], 1);
  EXPECT_EQ(use[Resource::kNetworkReceived], 2);
  EXPECT_EQ(use[Resource::kNetworkSent], 5);
  EXPECT_TRUE(std::isnan(use[Resource::kDeviceBusy]));
}

TEST(ResourceMeterTest, LeavesUnknownWhatWasNotMeasured) {
  const ResourceUse use = ResourceMeter::rates({}, {.own = {.cpu_seconds = 1}}, 1);
  for (const double value : use.values()) EXPECT_TRUE(std::isnan(value));
  const ResourceUse at_once =
      ResourceMeter::rates({.own = {.cpu_seconds = 1}}, {.own = {.cpu_seconds = 1}}, 0);
  EXPECT_TRUE(std::isnan(at_once[Resource::kCpu]));
}

TEST(ResourceMeterTest, MeasuresItsOwnProcess) {
  using namespace std::chrono_literals;
  ResourceMeter meter;
  meter.begin(5s);
  EXPECT_FALSE(meter.is_due(5s + 999ms));
  EXPECT_TRUE(meter.is_due(6s));
  const double start = cpu_by_getrusage();
  volatile double sum = 0;
  while (cpu_by_getrusage() < start + 0.1) sum = sum + 1;
  const ResourceUse use = meter.measure(9s);
  const double spent = cpu_by_getrusage() - start;
  EXPECT_THAT(use[Resource::kCpu], DoubleNear(spent / 4, 0.01));
  EXPECT_FALSE(meter.is_due(9s + 999ms));
}

TEST(ResourceFieldsTest, HasNamesOfItsOwnForEachResource) {
  std::set<std::string_view> names;
  for (const ResourceField& field : kResourceFields) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_FALSE(field.help.empty() || field.unit.empty() || field.label.empty()) << field.name;
    EXPECT_TRUE(is_resource(field.name));
  }
  EXPECT_FALSE(is_resource("loss"));
}

}  // namespace
}  // namespace stoker
