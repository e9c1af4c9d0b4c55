// SettingChange: what was changed while a run trained (RUN/setting_changes.jsonl). stokerd appends a
// line for each change; stokerctl reads them.
//
// Threads: values; functions of their arguments and the file system.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shared/base/file.h"
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

// Removes the changes that the run does not have after it is resumed from a checkpoint of `step`: those
// after it, and those of the same step that were made after the checkpoint, which are the last ones of
// a key whose value is not the one that `value_of` the key returns for the checkpoint. Replaces the file
// only if there are such changes; then without invalid lines. Errors as read_file() and
// write_file_atomically().
Status remove_lost_changes(FileSystem& files, const std::string& path, uint64_t step,
                           const std::function<std::string(const std::string& key)>& value_of);

}  // namespace stoker::run
