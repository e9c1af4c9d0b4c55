#include "shared/config/owned_config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "shared/base/file.h"

namespace stoker::config {

Result<OwnedConfig> load_owned_config(const std::string& path,
                                      const std::vector<std::string>& overrides,
                                      SettingOrigins* maybe_origins) {
  constexpr off_t kMaxConfigBytes = (1 << 20) + 1;  // parse_config() rejects more than 1 MiB
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd,
                          default_file_system().open(path, O_RDONLY | O_NONBLOCK));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  if (!S_ISREG(info.st_mode))
    return Status(StatusCode::kInvalidArgument, path + ": not a regular file");
  std::string text(static_cast<size_t>(std::min(info.st_size, kMaxConfigBytes)), '\0');
  STOKER_RETURN_IF_ERROR(read_exactly(fd.get(), 0, std::as_writable_bytes(std::span(text)), path));
  STOKER_ASSIGN_OR_RETURN(Config config, parse_config(text, path, overrides, maybe_origins));
  return OwnedConfig{.config = std::move(config),
                     .is_own = info.st_uid == 0 || info.st_uid == ::geteuid(),
                     .is_writable_by_others = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0,
                     .uid = info.st_uid};
}

}  // namespace stoker::config
