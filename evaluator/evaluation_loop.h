// EvaluationLoop: evaluates and records every pending checkpoint exactly once, and first those that
// are requested (evaluation_requests.h). It owns the attempt counts, the outcome log and the results,
// and acts on new results.
//
// The evaluation itself is a callback (checkpoint_evaluator.h), so this code does not depend on
// LibTorch.
//
// Threads:  one.
// Blocking: evaluate_due() runs as long as the evaluations take; a stop ends it after the current
//           batch.
// Errors:   open(): kIoError, kNoSpace, kCorrupt (metrics/eval.jsonl), kInvalidArgument (eval.monitor
//           is not in the table of metrics). evaluate_due(): a required
//           file cannot be written, the results do not have the metric of eval.monitor
//           (kInvalidArgument), or only checkpoints remain that another program keeps locked
//           (kBusy). A checkpoint that cannot be evaluated is not an error; its outcome is logged,
//           and failures() has them together.
// Crash:    after a crash at any point and a restart, each checkpoint has exactly one result, one
//           record per dataset and one outcome. A requested evaluation is repeated unless its outcome
//           was recorded.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
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
#include "shared/run/early_stopping.h"
#include "shared/run/evaluation_queue.h"
#include "shared/run/evaluation_requests.h"
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
  // `table`: the metrics of the run. `files` and `clock` must outlive this object.
  EvaluationLoop(FileSystem& files, Clock& clock, const config::Config& config,
                 eval_metrics::MetricTable table, const run::RunLayout& layout, Evaluate evaluate);

  // The caller must hold RUN/eval/LOCK unless the file system has no locks.
  Status open();

  struct LoopState {
    bool run_ended = false;
    bool paced = false;  // apply eval.start_delay_seconds and throttle_seconds
    uint64_t until = 0;  // stop once this step has been reached; 0: evaluate everything
  };
  struct LoopResult {
    // Monotonic time when the next checkpoint becomes due; empty: none is pending.
    std::optional<std::chrono::nanoseconds> maybe_due_at;
    std::string waiting_for;  // why it is not due yet
    int num_considered = 0;   // evaluations attempted by this call
  };
  Result<LoopResult> evaluate_due(const LoopState& loop_state, std::stop_token stop);

  // Highest step with a final outcome, of the checkpoints seen by this object; 0: none.
  uint64_t newest_resolved() const { return newest_resolved_; }

  // Ok: all outcomes that this object has recorded are evaluated or superseded. kCorrupt: others are
  // corrupt, or failed because of corrupt data; kInternal: one or more are failed because of a defect.
  // Otherwise the code of the first one that failed.
  Status failures() const;

 private:
  struct Task {
    checkpoint::CheckpointEntry entry;
    run::EvaluationRequest request;  // without id: none
    bool is_requested() const { return !request.id.empty(); }
  };
  // The requests that are not finished. Removes the others and invalid ones.
  Result<std::vector<Task>> requested(const run::EvaluationRequests& requests,
                                      const std::vector<checkpoint::CheckpointEntry>& entries);
  // Records a request whose checkpoint does not exist as superseded.
  Status reject_request(const run::EvaluationRequest& request, const std::string& reason);
  void remove_request(const std::string& path);
  // The pending ones of `entries`, in evaluation order.
  std::vector<checkpoint::CheckpointEntry> pending(
      const std::vector<checkpoint::CheckpointEntry>& entries, const LoopState& loop_state) const;
  bool has_reached_step(const std::vector<checkpoint::CheckpointEntry>& due, uint64_t until) const;
  run::EvaluationState state_of(const checkpoint::CheckpointEntry& entry) const;
  LoopResult wait_time(const Task& task, const LoopState& loop_state) const;
  // kBusy: nothing but the checkpoint of a task has been waited for, for too long.
  Status check_busy(const std::vector<Task>& tasks) const;
  Status evaluate_checkpoint(const Task& task, std::stop_token stop);
  // Returns the recorded result if the checkpoint was evaluated before a crash, else, or on request,
  // evaluates it.
  Result<Evaluation> evaluate_or_reuse(const Task& task,
                                       const checkpoint::VerifiedCheckpoint& checkpoint,
                                       std::stop_token stop);
  // Runs eval.on_best_command for a new best result.
  void handle_result(const run::EvalResult& result, const std::string& checkpoint_path,
                     std::stop_token stop);
  void warn_of_nonfinite(const run::EvalResult& result) const;
  // What is derived from the results follows the run to another branch.
  Status update_lineage();
  void drop_early_stop();
  void request_early_stop(uint64_t step, const std::string& manifest_sha256);
  Status handle_failure(const Task& task, const std::string& manifest_sha256, const Status& error);
  Status retry_or_fail(const Task& task, const std::string& manifest_sha256, const Status& error);
  Status record_outcome(Outcome outcome, const Task& task, const std::string& manifest_sha256,
                        const Status& error);

  // Constant after construction.
  FileSystem& files_;
  Clock& clock_;
  const config::Config& config_;
  const eval_metrics::MetricTable table_;
  const run::RunLayout layout_;
  const run::SelectionPolicy policy_;
  const Evaluate evaluate_;
  const std::chrono::nanoseconds start_time_;

  run::EarlyStopping early_stopping_;  // set by open()
  std::optional<OutcomeLog> outcome_log_;
  std::optional<AttemptCounts> attempt_counts_;
  std::unique_ptr<ResultRecorder> results_;
  std::map<std::string, std::chrono::nanoseconds> not_before_;  // retry time by checkpoint path
  struct Busy {
    std::chrono::nanoseconds since;
    std::string reason;
  };
  std::map<std::string, Busy> busy_;     // by checkpoint path, until another result
  std::set<std::string> kept_requests_;  // paths of requests that could not be removed
  // Since when no more checkpoints are expected: the run has ended, or this is not followed.
  std::optional<std::chrono::nanoseconds> last_checkpoint_time_;
  std::optional<std::chrono::nanoseconds> last_evaluation_start_;  // start of the last evaluation
  uint64_t newest_resolved_ = 0;
  struct Failures {
    int count = 0;
    uint64_t first_step = 0;
    std::string first_reason;
    StatusCode code = StatusCode::kCorrupt;
    void add(uint64_t step, const Status& error);
  } failures_;
};

}  // namespace stoker::evaluator
