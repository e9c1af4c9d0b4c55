// EvaluationOutcome: what became of one checkpoint, a JSON object on a line of RUN/eval/outcomes.jsonl. The
// evaluator writes them; the trainer's retention reads them.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

}  // namespace stoker::run
