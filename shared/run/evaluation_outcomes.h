// EvaluationOutcomes: the outcome of each checkpoint's evaluation from RUN/eval/outcomes.jsonl, one
// JSON object per line. The evaluator writes the file; the trainer's retention reads it.
//
// Threads: values.
// Errors:  read_evaluation_outcomes(): kIoError, kPermission, kInvalidArgument (not a regular file,
//          or too large). A missing file is treated as empty. A line that is partial or cannot be
//          parsed is ignored, and its checkpoint counts as not evaluated.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/run/evaluation_queue.h"
#include "shared/run/lineage.h"

namespace stoker::run {

inline constexpr uint64_t kMaxOutcomeBytes = 64 << 10;  // of a line of eval/outcomes.jsonl
// Of the file, whose outcomes are kept in memory: about a million evaluations.
inline constexpr uint64_t kMaxOutcomesBytes = 256 << 20;
// for_each_line() of such a file. kInvalidArgument also if it has more than kMaxOutcomesBytes.
Status for_each_outcome_line(const std::string& path, uint64_t max_line_bytes,
                             const std::function<Status(const FileLine&)>& on_line);

// Every outcome is final: the evaluator processes the checkpoint again only on request.
enum class Outcome { kEvaluated, kCorrupt, kSuperseded, kFailed };

struct EvaluationOutcome {
  uint64_t step = 0;
  std::string manifest_sha256;  // empty if the manifest could not be read
  Outcome outcome = Outcome::kEvaluated;
  int attempts = 1;
  std::string reason;                      // for every outcome except kEvaluated
  std::optional<ExitCode> exit_code = {};  // kFailed: that of a program that ends because of it
  std::string request_id = {};             // of the EvaluationRequest; empty: by eval.checkpoints

  // Whether this outcome, recorded later, is the state of a checkpoint that had `earlier`. If a
  // requested evaluation fails, the result of the earlier one remains.
  bool replaces(Outcome earlier) const;
};

// Includes the newline.
std::string to_json_line(const EvaluationOutcome& entry, std::string_view wall_time);
// Empty if the line is not a complete record as the evaluator writes it.
std::optional<EvaluationOutcome> parse_outcome_record(std::string_view line);
// As above, but `attempts` and `reason` are not read and can be missing.
std::optional<EvaluationOutcome> parse_outcome(std::string_view line);

class EvaluationOutcomes {
 public:
  // Adds a line of the file. A later line about the same checkpoint replaces an earlier one.
  void add_line(std::string_view line);

  // If not kPending, the evaluator will not process the checkpoint again.
  EvaluationState state(uint64_t step, const std::string& manifest_sha256) const;
  // True if the evaluator read the complete checkpoint and found a checksum mismatch.
  bool is_corrupt(uint64_t step, const std::string& manifest_sha256) const;
  // Of ancestors of the present state, also deleted ones.
  std::set<uint64_t> evaluated_steps(const Lineage& lineage) const;

 private:
  std::map<std::pair<uint64_t, std::string>, Outcome> outcomes_;
};

Result<EvaluationOutcomes> read_evaluation_outcomes(const std::string& path);

}  // namespace stoker::run
