// CheckpointList: the checkpoints of a run with their sizes, metrics and retention status.
//
// Threads: values and stateless functions; they access only their arguments and the file system.
// Errors:  kIoError, kPermission, kCorrupt (an evaluation result). A checkpoint that cannot be read
//          is listed with its error; the call still succeeds.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ctl/run_report.h"
#include "ctl/terminal.h"
#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

struct ListedCheckpoint {
  uint64_t step = 0;
  std::string path;
  std::string created;  // ISO 8601
  uint64_t bytes = 0;   // total size of the files listed in the manifest
  // of CheckpointList::metrics, for exactly this checkpoint
  std::vector<std::optional<double>> values;
  std::optional<uint64_t> sample_errors;  // up to this step; nullopt: not in the manifest
  bool best = false;
  bool is_open = false;  // a process has it open, so retention does not delete it now
  // Why retention keeps it (retention::RetentionReason: newest, last, …); empty: it can be
  // deleted.
  std::string kept_by;
  std::string error;  // why the manifest is unusable; empty: it is valid
};

struct CheckpointList {
  std::string run_dir;
  std::vector<MetricName> metrics;  // of the first dataset; empty before the first evaluation
  std::vector<ListedCheckpoint> checkpoints;
  // Best result so far; its checkpoint can be deleted already.
  std::optional<run::BestCheckpoint> maybe_best;
};

Result<CheckpointList> list_checkpoints(const run::RunLayout& layout);
// `now`: reference time for the ages.
std::string render_list(const CheckpointList& list, const TextStyle& style,
                        std::chrono::system_clock::time_point now);
// One JSON object on one line, without a newline.
std::string to_json(const CheckpointList& list);

}  // namespace stoker::ctl
