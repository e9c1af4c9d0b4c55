// EvaluatorApp: the evaluator's life: open the run, evaluate what is due, follow until the run has
// ended.
//
// It reads the run directory and writes RUN/eval, RUN/metrics/eval.jsonl, RUN/tensorboard and its log;
// nothing of it reaches the trainer but these files.
//
// Threads: run() on the main thread, which takes the signals; the work is done on one worker
//          thread.
// Errors:  run() logs them and returns the exit code.
// Crash:   killed anywhere and started again, each checkpoint has exactly one result, one row and
//          one ledger line.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "evaluator/checkpoint_evaluator.h"
#include "evaluator/command_line.h"
#include "evaluator/evaluation_loop.h"
#include "evaluator/evaluation_watchdog.h"
#include "evaluator/wait_logger.h"
#include "shared/base/clock.h"
#include "shared/base/exit_code.h"
#include "shared/run/run_layout.h"

namespace stoker::evaluator {

class EvaluatorApp {
 public:
  EvaluatorApp(CommandLine command, Clock& clock);

  ExitCode run();

 private:
  Status work(std::stop_token stop);
  Status open_run(std::stop_token stop);
  Status load_config(const std::string& path);
  Status open_results();
  Result<Evaluation> evaluate(const checkpoint::VerifiedCheckpoint& checkpoint,
                              std::stop_token stop);
  Status print_sample();
  // What is there, then done.
  Status evaluate_once(std::stop_token stop);
  // What comes, until the run has ended.
  Status follow(std::stop_token stop);

  // Constant after construction.
  const CommandLine command_;
  const run::RunLayout layout_;
  Clock& clock_;

  // Own synchronisation.
  EvaluationWatchdog watchdog_;

  // The worker thread's.
  config::Config config_;
  std::optional<FileLock> lock_;
  std::unique_ptr<CheckpointEvaluator> evaluator_;
  std::unique_ptr<EvaluationLoop> loop_;
  WaitLogger wait_logger_;
};

}  // namespace stoker::evaluator
