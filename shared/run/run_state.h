// RunState: whether a run is going on, has ended, or is dead; from its directory alone.
//
// A held LOCK is a live trainer: the kernel frees it however the process dies, so no heartbeat is
// needed. END.json is written by a trainer that ended by its own decision, and removed by the next
// one at its start.
//
// Threads: any.
// Errors:  look() has none: what cannot be read is not there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::run {

struct RunEnd {
  std::string state;  // finished | stopped | failed
  uint64_t step = 0;
  std::string reason;  // one line
  int exit_code = 0;
};

std::string to_json(const RunEnd& end);
Result<RunEnd> parse_run_end(std::string_view json, const std::string& path_in_messages);
Status write_run_end(FileSystem& files, const RunLayout& layout, const RunEnd& end);

struct RunState {
  enum class Kind {
    kAbsent,   // no run directory, or nothing in it
    kRunning,  // the lock is held
    kEnded,    // END.json is there
    kDead,     // neither: the trainer was killed, or the machine went down
  };
  Kind kind = Kind::kAbsent;
  std::optional<RunEnd> end;
};

RunState look(const RunLayout& layout);

}  // namespace stoker::run
