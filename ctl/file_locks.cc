#include "ctl/file_locks.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace stoker::ctl {

// "1: FLOCK  ADVISORY  READ 4711 fe:00:1234567 0 EOF", the numbers of the device in base 16.
FileLocks FileLocks::read() {
  FileLocks locks;
  std::ifstream stream("/proc/locks");
  for (std::string line; std::getline(stream, line);) {
    unsigned device_major = 0, device_minor = 0;
    unsigned long inode = 0;
    const int read = std::sscanf(line.c_str(), "%*d: FLOCK %*s %*s %*d %x:%x:%lu", &device_major,
                                 &device_minor, &inode);
    if (read == 3) locks.held_.emplace_back(makedev(device_major, device_minor), inode);
  }
  return locks;
}

bool FileLocks::holds(const std::string& path) const {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  return std::ranges::count(held_, std::pair(info.st_dev, info.st_ino)) > 0;
}

}  // namespace stoker::ctl
