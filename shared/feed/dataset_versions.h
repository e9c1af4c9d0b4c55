// DatasetVersions: the versions of a refreshable dataset over a run. Resuming and reproducing any
// step both depend on this history.
//
// RUN/dataset_versions.jsonl has one line for each version of the data that was ever trained on.
// The line is written before the first step with that version. The index of the first version is in
// index, the others are in index/version-TICKET.
//
// Threads: functions of their arguments and the file system. Only the stokerd of the run directory
//          writes.
// Errors:  kCorrupt: the file was modified or is corrupt; names the line. kIoError, kPermission.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/feed/make_sample_plan.h"

namespace stoker::feed {

struct DatasetVersion {
  PlanStart start;  // ticket and epoch
  uint64_t samples = 0;
  std::string fingerprint;
  bool operator==(const DatasetVersion&) const = default;
};
// Ordered by ticket, strictly increasing, the first at 0. Empty if the run's data is not
// refreshable.
using DatasetVersions = std::vector<DatasetVersion>;

// True if any training dataset is refreshable, or is refreshed immediately, respectively.
bool is_refreshable(const config::Config& config);
bool refreshes_immediately(const config::Config& config);

// Empty if the file does not exist.
Result<DatasetVersions> read_dataset_versions(const std::string& path);
std::string to_text(const DatasetVersions& history);  // the content of the file
// Replaces the file.
Status write_dataset_versions(const std::string& path, const DatasetVersions& history);
Result<DatasetVersions> parse_dataset_versions(std::string_view text,
                                               const std::string& path_in_messages);

// The version that is trained on at `ticket`. `history` must not be empty.
const DatasetVersion& version_at(const DatasetVersions& history, uint64_t ticket);
// The directory of the index of `state`.
std::string index_dir_for(const std::string& index_dir, const DatasetVersion& state);

}  // namespace stoker::feed
