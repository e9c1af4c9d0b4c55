// EvaluationOutcomes: what became of each checkpoint, by the evaluator's RUN/eval/outcomes.jsonl: one
// JSON object a line. The evaluator writes them; the trainer's retention reads them.
//
// Threads: values.
// Errors:  read_evaluation_outcomes(): kIoError, kPermission, kInvalidArgument (it is no file, or too
//          large). No file is an empty one. A line that is torn or not understood is passed over:
//          what it would have said is not settled.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/status.h"
#include "shared/run/evaluation_queue.h"

namespace stoker::run {

// Each is final: the evaluator does not look at the checkpoint again.
enum class Outcome { kEvaluated, kCorrupt, kSuperseded, kFailed };

struct EvaluationOutcome {
  uint64_t step = 0;
  std::string manifest_sha256;  // empty where the manifest could not be read
  Outcome outcome = Outcome::kEvaluated;
  int attempts = 1;
  std::string reason;  // of anything but kEvaluated
};

// With its newline.
std::string to_json_line(const EvaluationOutcome& entry, std::string_view wall_time);
// Nothing where the line is not one, with all that the evaluator writes.
std::optional<EvaluationOutcome> parse_outcome_record(std::string_view line);
// The same for those who only ask what became of which checkpoint: tries and reason are not read,
// and may be missing.
std::optional<EvaluationOutcome> parse_outcome(std::string_view line);

class EvaluationOutcomes {
 public:
  // A line of the file; a later one about the same checkpoint replaces what was said before.
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
