// owned_config: reads a configuration together with who could have written it.
//
// Threads:  functions of their arguments and the file system.
// Blocking: for the file system.
// Errors:   those of load_config(). kInvalidArgument also: not a regular file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/config/load_config.h"

namespace stoker::config {

inline constexpr uint64_t kMaxConfigBytes = 1 << 20;  // of a file

struct OwnedConfig {
  Config config;
  bool is_own = false;                // of root or the user of this process
  bool is_writable_by_others = true;  // by its group or by all
  unsigned uid = 0;                   // of the owner

  // Nobody else decides what it has.
  bool is_trusted() const { return is_own && !is_writable_by_others; }
};

// Of one descriptor, so that the file whose owner is checked is the one that is read.
Result<OwnedConfig> load_owned_config(const std::string& path,
                                      const std::vector<std::string>& overrides,
                                      SettingOrigins* maybe_origins = nullptr);

}  // namespace stoker::config
