// OutcomeLog: the evaluator's memory of what became of each checkpoint, one JSON object a line in
// run/eval/outcomes.jsonl.
//
// A checkpoint is named by step and manifest SHA-256. An outcome is final.
//
// Threads: one.
// Errors:  open(): kIoError, kPermission. Lines that a crash tore are dropped with a log line; the
//          evaluation is redone.
// Crash:   a line is appended and synced after the result file is in place: what the ledger knows
//          is there; what is there and not in the ledger is taken up again without being computed
//          twice (EvaluatorApp).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/run/evaluation_outcome.h"

namespace stoker::evaluator {

using run::EvaluationOutcome;
using run::Outcome;

class OutcomeLog {
 public:
  static Result<OutcomeLog> open(FileSystem& files, const std::string& path);

  Status append(const EvaluationOutcome& entry, std::string_view wall_time);
  // The last entry about this checkpoint, or nullptr.
  const EvaluationOutcome* find(uint64_t step, const std::string& manifest_sha256) const;
  std::set<uint64_t> evaluated_steps() const;

 private:
  OutcomeLog(FileSystem& files, std::string path, UniqueFd fd)
      : files_(&files), path_(std::move(path)), fd_(std::move(fd)) {}
  void read_lines(std::string_view text);

  FileSystem* files_;  // not owned; outlives this object
  std::string path_;
  UniqueFd fd_;
  std::map<std::pair<uint64_t, std::string>, EvaluationOutcome> entries_;
};

}  // namespace stoker::evaluator
