// EvaluationOutcomes: what the evaluator's ledger (RUN/eval/outcomes.jsonl) says has become of checkpoints, for
// those who only read it.
//
// Threads: values.
// Errors:  read_evaluation_outcomes(): kIoError, kPermission, kInvalidArgument (it is no file, or too large). No
//          ledger is an empty one. A line that is torn or not understood is passed over: what it
//          would have said is not settled.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/status.h"
#include "shared/run/evaluation_outcome.h"
#include "shared/run/evaluation_queue.h"

namespace stoker::run {

class EvaluationOutcomes {
 public:
  // A line of the ledger; a later one about the same checkpoint replaces what was said before.
  void add_line(std::string_view line);

  // Where it is not kPending, the evaluator will not look at the checkpoint again.
  EvaluationState state(uint64_t step, const std::string& manifest_sha256) const;
  // It read every byte, and found that they are not what was committed.
  bool is_corrupt(uint64_t step, const std::string& manifest_sha256) const;
  std::set<uint64_t> evaluated_steps() const;

 private:
  std::map<std::pair<uint64_t, std::string>, Outcome> outcomes_;
};

Result<EvaluationOutcomes> read_evaluation_outcomes(const std::string& path);

}  // namespace stoker::run
