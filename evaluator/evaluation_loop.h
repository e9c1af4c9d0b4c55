// EvaluationLoop: what is due is evaluated and recorded, each checkpoint once: the backlog, the
// tries, the outcomes, and what a result leads to.
//
// How a checkpoint is evaluated is somebody else's (checkpoint_evaluator.h): nothing here knows
// LibTorch.
//
// Threads:  one.
// Blocking: evaluate_due() as long as the evaluations take; a stop ends it after the batch.
// Errors:   open(): kIoError, kNoSpace, kCorrupt (metrics/eval.jsonl). evaluate_due(): the disk
//           does not take what must be recorded, or the goal is a metric that the results do not
//           have (kInvalidArgument). Trouble with a checkpoint is no error: it is in the ledger.
// Crash:    killed anywhere and started again, each checkpoint has exactly one result, one row a
//           set and one line in the ledger.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "evaluator/artifact.h"
#include "evaluator/attempt_counts.h"
#include "evaluator/outcome_log.h"
#include "evaluator/result_recorder.h"
#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/run/evaluation_queue.h"
#include "shared/run/run_layout.h"

namespace stoker::evaluator {

struct Evaluation {
  run::EvalResult result;
  std::vector<Artifact> artifacts;
};
using Evaluate =
    std::function<Result<Evaluation>(const checkpoint::VerifiedCheckpoint&, std::stop_token)>;

class EvaluationLoop {
 public:
  // `files` and `clock` must outlive this object.
  EvaluationLoop(FileSystem& files, Clock& clock, const config::Config& config,
                 const run::RunLayout& layout, Evaluate evaluate);

  // Where the caller holds RUN/eval/LOCK.
  Status open();

  struct LoopState {
    bool run_ended = false;
    bool paced = false;  // eval.start_delay_seconds and throttle_seconds count
    uint64_t until = 0;  // nothing past this step, once it is reached; 0 = all that is due
  };
  struct LoopResult {
    // Something is due then, and not before (monotonic time); nothing: nothing is due.
    std::optional<std::chrono::nanoseconds> maybe_due_at;
    std::string waiting_for;  // why not before
    int num_considered = 0;   // checkpoints that were due now
  };
  Result<LoopResult> evaluate_due(const LoopState& loop_state, std::stop_token stop);

  // The newest step that needs no more attention, of those that were there in the life of this
  // object; 0: none.
  uint64_t newest_resolved() const { return newest_resolved_; }

 private:
  // Of `entries`, in the order in which they are to be evaluated.
  std::vector<checkpoint::CheckpointEntry> pending(
      const std::vector<checkpoint::CheckpointEntry>& entries, const LoopState& loop_state) const;
  bool is_far_enough(const std::vector<checkpoint::CheckpointEntry>& due, uint64_t until) const;
  run::EvaluationState state_of(const checkpoint::CheckpointEntry& entry) const;
  LoopResult wait_time(const checkpoint::CheckpointEntry& entry, const LoopState& loop_state) const;
  Status evaluate_one(const checkpoint::CheckpointEntry& entry, std::stop_token stop);
  // The recorded result of a checkpoint that was evaluated before a crash, else a new one.
  Result<Evaluation> evaluate_or_reuse(const checkpoint::CheckpointEntry& entry,
                                       const checkpoint::VerifiedCheckpoint& checkpoint,
                                       std::stop_token stop);
  // What a new result leads to: the command for a new best, and a request to stop.
  void handle_result(const run::EvalResult& result, const std::string& checkpoint_path,
                     std::stop_token stop);
  void request_early_stop(uint64_t step);
  Status handle_failure(const checkpoint::CheckpointEntry& entry,
                        const std::string& manifest_sha256, const Status& error);
  Status retry_or_fail(const checkpoint::CheckpointEntry& entry, const std::string& manifest_sha256,
                       const Status& error);
  Status record_outcome(Outcome outcome, const checkpoint::CheckpointEntry& entry,
                        const std::string& manifest_sha256, const std::string& reason);

  // Constant after construction.
  FileSystem& files_;
  Clock& clock_;
  const config::Config& config_;
  const run::RunLayout layout_;
  const run::SelectionPolicy policy_;
  const Evaluate evaluate_;
  const std::chrono::nanoseconds began_;

  std::optional<OutcomeLog> outcome_log_;
  std::optional<AttemptCounts> attempt_counts_;
  std::unique_ptr<ResultRecorder> results_;
  std::map<std::string, std::chrono::nanoseconds> not_before_;  // by path, of what failed
  std::optional<std::chrono::nanoseconds> last_began_;          // an evaluation
  uint64_t newest_resolved_ = 0;
};

}  // namespace stoker::evaluator
