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

#include "evaluator/attempts.h"
#include "evaluator/ledger.h"
#include "evaluator/result_log.h"
#include "evaluator/view.h"
#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/run/backlog.h"
#include "shared/run/run_layout.h"

namespace stoker::evaluator {

struct Evaluation {
  run::EvalResult result;
  std::vector<View> views;
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

  struct Circumstances {
    bool run_ended = false;
    bool paced = false;  // eval.start_delay_seconds and throttle_seconds count
    uint64_t until = 0;  // nothing past this step, once it is reached; 0 = all that is due
  };
  struct Pass {
    // Something is due then, and not before (monotonic time); nothing: nothing is due.
    std::optional<std::chrono::nanoseconds> maybe_due_at;
    std::string waiting_for;  // why not before
    int looked_at = 0;        // checkpoints that were due now
  };
  Result<Pass> evaluate_due(const Circumstances& circumstances, std::stop_token stop);

  // The newest step that needs no more attention, of those that were there in the life of this
  // object; 0: none.
  uint64_t newest_settled() const { return newest_settled_; }

 private:
  // Of `entries`, in the order in which they are to be evaluated.
  std::vector<checkpoint::CheckpointEntry> due_of(
      const std::vector<checkpoint::CheckpointEntry>& entries,
      const Circumstances& circumstances) const;
  bool is_far_enough(const std::vector<checkpoint::CheckpointEntry>& due, uint64_t until) const;
  run::Fate fate_of(const checkpoint::CheckpointEntry& entry) const;
  Pass wait_of(const checkpoint::CheckpointEntry& entry, const Circumstances& circumstances) const;
  Status evaluate_one(const checkpoint::CheckpointEntry& entry, std::stop_token stop);
  // The recorded result of a checkpoint that was evaluated before a crash, else a new one.
  Result<Evaluation> judge(const checkpoint::CheckpointEntry& entry,
                           const checkpoint::VerifiedCheckpoint& checkpoint, std::stop_token stop);
  // What a new result leads to: the command for a new best, and a request to stop.
  void act_on(const run::EvalResult& result, const std::string& checkpoint_path,
              std::stop_token stop);
  void ask_to_stop(uint64_t step);
  Status settle(const checkpoint::CheckpointEntry& entry, const std::string& manifest_sha256,
                const Status& trouble);
  Status try_again_or_give_up(const checkpoint::CheckpointEntry& entry,
                              const std::string& manifest_sha256, const Status& trouble);
  Status settle_as(Outcome outcome, const checkpoint::CheckpointEntry& entry,
                   const std::string& manifest_sha256, const std::string& reason);

  // Constant after construction.
  FileSystem& files_;
  Clock& clock_;
  const config::Config& config_;
  const run::RunLayout layout_;
  const run::BacklogRule rule_;
  const Evaluate evaluate_;
  const std::chrono::nanoseconds began_;

  std::optional<Ledger> ledger_;
  std::optional<Attempts> attempts_;
  std::unique_ptr<ResultLog> results_;
  std::map<std::string, std::chrono::nanoseconds> not_before_;  // by path, of what failed
  std::optional<std::chrono::nanoseconds> last_began_;          // an evaluation
  uint64_t newest_settled_ = 0;
};

}  // namespace stoker::evaluator
