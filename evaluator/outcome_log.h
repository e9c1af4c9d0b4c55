// OutcomeLog: the final outcome of each checkpoint, one JSON object per line in
// RUN/eval/outcomes.jsonl.
//
// Checkpoints are identified by step and manifest SHA-256. Only a requested evaluation changes an
// outcome.
//
// Threads: one.
// Errors:  open(): kIoError, kPermission. Truncated and invalid lines are dropped and logged; those
//          checkpoints are evaluated again.
// Crash:   an outcome is appended and synced after the result file is in place, so every logged
//          evaluation has a result. A result without an outcome is completed on the next start
//          without being computed again (EvaluationLoop::open()).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/run/evaluation_outcomes.h"
#include "shared/run/lineage.h"

namespace stoker::evaluator {

using run::EvaluationOutcome;
using run::Outcome;

class OutcomeLog {
 public:
  static Result<OutcomeLog> open(FileSystem& files, const std::string& path);

  Status append(const EvaluationOutcome& entry, std::string_view wall_time);
  // The last outcome of this checkpoint, or nullptr.
  const EvaluationOutcome* find(uint64_t step, const std::string& manifest_sha256) const;
  // Of ancestors of the present state, also deleted ones.
  std::set<uint64_t> evaluated_steps(const run::Lineage& lineage) const;
  // Whether an outcome of this request is recorded.
  bool has_request(const std::string& request_id) const {
    return finished_requests_.contains(request_id);
  }

 private:
  OutcomeLog(FileSystem& files, std::string path, UniqueFd fd)
      : files_(&files), path_(std::move(path)), fd_(std::move(fd)) {}
  void read_line(std::string_view text, uint64_t number);
  void add(const EvaluationOutcome& entry);

  FileSystem* files_;  // must outlive this object
  std::string path_;
  UniqueFd fd_;
  std::map<std::pair<uint64_t, std::string>, EvaluationOutcome> entries_;
  std::set<std::string> finished_requests_;
};

}  // namespace stoker::evaluator
