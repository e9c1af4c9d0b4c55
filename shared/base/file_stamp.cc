#include "shared/base/file_stamp.h"

#include <sys/stat.h>

namespace stoker {

std::string file_stamp(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return "";
  return std::to_string(info.st_ino) + "." + std::to_string(info.st_size) + "." +
         std::to_string(info.st_mtim.tv_sec) + "." + std::to_string(info.st_mtim.tv_nsec);
}

}  // namespace stoker
