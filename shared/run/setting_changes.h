// SettingChanges: what was changed while a run trained (RUN/setting_changes.jsonl). stokerd appends a
// line for each change; stokerctl reads them.
//
// Threads: values; functions of their arguments and the file system.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"

namespace stoker::run {

struct SettingChange {
  std::string time;  // ISO 8601
  uint64_t step = 0;
  std::string key;
  std::string previous;  // values as in the configuration
  std::string current;

  bool operator==(const SettingChange&) const = default;
};

// A line of the file, without the newline.
std::string to_json(const SettingChange& change);

// The newest changes in the order of the file; none if there is no file. Invalid lines, such as a
// partial last one, are ignored. Other errors as read_file().
Result<std::vector<SettingChange>> read_setting_changes(const std::string& path);

}  // namespace stoker::run
