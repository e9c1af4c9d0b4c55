// EvaluatorApp: the stoker-eval process. Opens the run, evaluates pending checkpoints and, with
// --follow, waits for new ones until the run has ended.
//
// It reads the run directory and writes RUN/eval, RUN/metrics/eval.jsonl, RUN/tensorboard and its
// log. It affects the trainer only through these files.
//
// Threads: run() on the main thread, which handles signals; the work runs on one worker thread.
// Errors:  run() logs them and returns the exit code.
// Crash:   after a crash at any point and a restart, each checkpoint has exactly one result, one
//          record per dataset and one outcome.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "evaluator/checkpoint_evaluator.h"
#include "evaluator/command_line.h"
#include "evaluator/cpu_pacer.h"
#include "evaluator/evaluation_limit.h"
#include "evaluator/evaluation_loop.h"
#include "evaluator/wait_logger.h"
#include "shared/base/clock.h"
#include "shared/base/directory_root.h"
#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::evaluator {

class EvaluatorApp {
 public:
  EvaluatorApp(CommandLine command, Clock& clock);

  ExitCode run();

 private:
  Status run_command(std::stop_token stop);
  Status open_run_root();
  Status open_run(std::stop_token stop);
  Status load_config(const std::string& path);
  Status open_results();
  Result<Evaluation> evaluate(const checkpoint::VerifiedCheckpoint& checkpoint,
                              std::stop_token stop);
  // Limits the slowdown of a trainer on the same machine. Returns the duration of the pause.
  std::chrono::nanoseconds pause_if_due(const std::stop_token& stop);
  CpuTimes read_times() const;
  // Part of a pause.
  void sleep(std::chrono::nanoseconds duration, const std::stop_token& stop);
  Status print_generated_text();
  // Evaluates the pending checkpoints and returns.
  Status evaluate_once(std::stop_token stop);
  void record_end(const Status& status, bool was_stopped);
  // Evaluates new checkpoints until the run has ended.
  Status follow(std::stop_token stop);

  // Constant after construction.
  const CommandLine command_;
  const run::RunLayout layout_;
  Clock& clock_;

  // Internally synchronized.
  EvaluationWatchdog watchdog_;

  // Used by the worker thread only.
  bool has_own_quota_ = false;             // one that the trainer does not share
  CpuPacer pacer_;                         // reads it
  std::chrono::nanoseconds paused_{0};     // during the current evaluation
  std::optional<DirectoryRoot> run_root_;  // the run directory, which can be another user's
  config::Config config_;
  std::optional<FileLock> lock_;
  std::unique_ptr<CheckpointEvaluator> evaluator_;
  std::unique_ptr<EvaluationLoop> loop_;
  WaitLogger wait_logger_;
};

}  // namespace stoker::evaluator
