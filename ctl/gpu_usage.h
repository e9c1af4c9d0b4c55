// GpuUsage: load, memory, temperature and power of NVIDIA GPUs, from the driver's NVML library, which
// is loaded at run time.
//
// Threads:  one object per thread.
// Blocking: calls of the driver, milliseconds.
// Errors:   open(): nullopt without the library, the driver or a GPU. read() omits what a GPU does not
//           report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stoker::ctl {

struct Gpu {
  int index = 0;
  std::string name;
  std::optional<unsigned> load_percent;
  uint64_t memory_used_bytes = 0;
  uint64_t memory_total_bytes = 0;  // 0: unknown
  std::optional<unsigned> celsius;
  std::optional<double> watts;
};

class GpuUsage {
 public:
  static std::optional<GpuUsage> open(const std::string& library = "libnvidia-ml.so.1");
  GpuUsage(GpuUsage&& other) noexcept;
  GpuUsage& operator=(GpuUsage&& other) noexcept;
  ~GpuUsage();

  std::vector<Gpu> read() const;

 private:
  struct Functions;
  explicit GpuUsage(const Functions* functions) : functions_(functions) {}
  const Functions* functions_;  // owned; null: moved from
};

}  // namespace stoker::ctl
