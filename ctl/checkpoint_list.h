// CheckpointList: the checkpoints of a run with what was found out about each.
//
// Threads: values; functions of their arguments and the file system.
// Errors:  kIoError, kPermission, kCorrupt (an evaluation result). A checkpoint that cannot be read
//          is an entry that says so, not an error.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ctl/run_report.h"
#include "ctl/terminal.h"
#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

// Who holds which file by flock, as the kernel lists it: nothing is locked to find out, so neither
// retention nor a reader is kept from anything. Where the list cannot be read (/proc/locks), nobody
// holds anything.
class FileLocks {
 public:
  static FileLocks read();

  // Whether somebody on this machine holds the file, shared or alone.
  bool holds(const std::string& path) const;

 private:
  std::vector<std::pair<dev_t, ino_t>> held_;
};

struct ListedCheckpoint {
  uint64_t step = 0;
  std::string path;
  std::string created;                        // ISO 8601
  uint64_t bytes = 0;                         // of its files, as the manifest says
  std::vector<std::optional<double>> values;  // of CheckpointList::metrics, of this very checkpoint
  std::optional<uint64_t> sample_errors;      // until then; nothing: it does not say
  bool best = false;
  bool held = false;  // a reader has it: retention leaves it alone for now
  std::string
      kept_by;  // why retention keeps it: newest, last, …, of retention::RetentionReason; empty: it may go
  std::string error;  // why its manifest cannot be used; empty: it can
};

struct CheckpointList {
  std::string run_dir;
  std::vector<MetricName> metrics;  // of the first set; empty before the first evaluation
  std::vector<ListedCheckpoint> checkpoints;
  // The best so far; its checkpoint may be gone.
  std::optional<run::BestCheckpoint> maybe_best;
};

Result<CheckpointList> list_checkpoints(const run::RunLayout& layout);
// `now`: to say how old they are.
std::string render_list(const CheckpointList& list, const TextStyle& style,
                        std::chrono::system_clock::time_point now);
// One JSON object on one line, without newline.
std::string to_json(const CheckpointList& list);

}  // namespace stoker::ctl
