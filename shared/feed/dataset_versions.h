// DatasetVersions: what a data set that grows was at which time of a run: the truth from which any
// start goes on, and any step is explained.
//
// RUN/dataset_versions.jsonl has a line for each state of the data that was ever trained on, written before its
// first step; its index is in index/version-TICKET, that of the first in index itself.
//
// Threads: functions of their arguments and the file system; written by the one stokerd of the run
//          directory only.
// Errors:  kCorrupt: the file is not as it was written; names the line. kIoError, kPermission.
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
// By ticket, strictly increasing; the first at 0. Empty: the run's data does not grow.
using DatasetVersions = std::vector<DatasetVersion>;

// Whether a set that is trained on grows; and whether one of them does at once.
bool is_refreshable(const config::Config& config);
bool refreshes_immediately(const config::Config& config);

// Empty where there is no such file.
Result<DatasetVersions> read_dataset_versions(const std::string& path);
Status write_dataset_versions(const std::string& path,
                              const DatasetVersions& history);  // replaces the file
Result<DatasetVersions> parse_dataset_versions(std::string_view text,
                                               const std::string& path_in_messages);

// What is trained on with `ticket`; `history` is not empty.
const DatasetVersion& version_at(const DatasetVersions& history, uint64_t ticket);
// Where its index is.
std::string index_dir_for(const std::string& index_dir, const DatasetVersion& state);

}  // namespace stoker::feed
