#include "shared/data/files/derived_file.h"

#include <fcntl.h>

#include <filesystem>

#include "shared/base/file.h"
#include "shared/base/number_format.h"

namespace stoker::data::files {

Status check_free_space(const std::string& path, uint64_t bytes, const std::string& what,
                        const std::string& alternative) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  STOKER_ASSIGN_OR_RETURN(const uint64_t available, default_file_system().free_bytes(folder));
  if (bytes <= available) return {};
  return Status(StatusCode::kNoSpace, folder + ": " + what + " takes " + format_mib(bytes) + ", " +
                                          std::to_string(available >> 20) +
                                          " MiB are free; make room, or " + alternative);
}

Status write_derived_file(const std::string& path,
                          const std::function<Status(int fd, const std::string& name)>& write) {
  FileSystem& disk = default_file_system();
  const std::string temporary = temporary_path(path);
  const std::string folder = std::filesystem::path(temporary).parent_path().string();
  const auto write_all = [&]() -> Status {
    STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, disk.open(temporary, kNewFile));
    STOKER_RETURN_IF_ERROR(write(fd.get(), temporary));
    STOKER_RETURN_IF_ERROR(disk.sync(fd.get(), temporary));
    return disk.rename(temporary, path);
  };
  Status written;
  try {
    written = write_all();
  } catch (...) {  // such as ScanStopped
    (void)disk.remove_file(temporary);
    throw;
  }
  if (!written.ok()) {
    (void)disk.remove_file(temporary);
    return written;
  }
  return disk.sync_directory(folder);
}

}  // namespace stoker::data::files
