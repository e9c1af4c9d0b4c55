#include "shared/config/owned_config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/regular_file.h"

namespace stoker::config {

Result<OwnedConfig> load_owned_config(const std::string& path,
                                      const std::vector<std::string>& overrides,
                                      SettingOrigins* maybe_origins) {
  constexpr off_t kMaxReadBytes = kMaxConfigBytes + 1;  // which parse_config() rejects
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd,
                          default_file_system().open(path, O_RDONLY | O_NONBLOCK));
  STOKER_ASSIGN_OR_RETURN(const struct stat info, regular_file(fd.get(), path));
  std::string text(static_cast<size_t>(std::min(info.st_size, kMaxReadBytes)), '\0');
  STOKER_RETURN_IF_ERROR(read_exactly(fd.get(), 0, std::as_writable_bytes(std::span(text)), path));
  STOKER_ASSIGN_OR_RETURN(Config config, parse_config(text, path, overrides, maybe_origins));
  return OwnedConfig{.config = std::move(config),
                     .is_own = info.st_uid == 0 || info.st_uid == ::geteuid(),
                     .is_writable_by_others = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0,
                     .uid = info.st_uid};
}

}  // namespace stoker::config
