#include "daemon/app/host_memory.h"

#include <fstream>
#include <string>

namespace stoker::app {

HostMemory read_host_memory() {
  HostMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string field; status >> field;) {
    uint64_t kib = 0;
    if (field == "VmHWM:" && status >> kib) memory.peak_bytes = kib << 10;
    if (field == "VmRSS:" && status >> kib) memory.rss_bytes = kib << 10;
  }
  return memory;
}

}  // namespace stoker::app
