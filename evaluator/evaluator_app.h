// EvaluatorApp: the evaluator's life: open the run, evaluate what is due, follow until the run has
// ended.
//
// It reads the run directory and writes RUN/eval, RUN/metrics/eval.jsonl, RUN/tb and its log;
// nothing of it reaches the trainer but these files.
//
// Threads: run() on the main thread, which takes the signals; the work is done on one worker
//          thread.
// Errors:  run() logs them and returns the exit code.
// Crash:   killed anywhere and started again, each checkpoint has exactly one result, one row and
//          one ledger line.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "evaluator/checkpoint_evaluator.h"
#include "evaluator/command_line.h"
#include "evaluator/ledger.h"
#include "evaluator/result_log.h"
#include "shared/base/clock.h"
#include "shared/base/exit_code.h"
#include "shared/run/run_layout.h"

namespace stoker::evaluator {

class EvaluatorApp {
 public:
  EvaluatorApp(CommandLine command, Clock& clock);

  ExitCode run();

 private:
  struct Attempt {
    int tries = 0;
    std::chrono::nanoseconds not_before{0};
  };

  Status work(std::stop_token stop);
  Status open_run(std::stop_token stop);
  Status open_results();
  Status evaluate_named(std::stop_token stop);
  Status print_sample();
  // Evaluates what is due; returns whether something is left to try again later.
  Result<bool> evaluate_due(std::stop_token stop);
  Status evaluate_one(const checkpoint::CheckpointEntry& entry, std::stop_token stop);
  // What a new result leads to: the command for a new best, and a request to stop.
  void act_on(const run::EvalResult& result, const std::string& checkpoint_path,
              std::stop_token stop);
  void ask_to_stop(uint64_t step);
  Status settle(const checkpoint::CheckpointEntry& entry, const std::string& manifest_sha256,
                const Status& trouble);
  bool is_settled(const checkpoint::CheckpointEntry& entry) const;
  Status follow(std::stop_token stop);

  // Constant after construction.
  const CommandLine command_;
  const run::RunLayout layout_;
  Clock& clock_;

  // The worker thread's.
  config::Config config_;
  std::optional<FileLock> lock_;
  std::unique_ptr<CheckpointEvaluator> evaluator_;
  std::optional<Ledger> ledger_;
  std::unique_ptr<ResultLog> results_;
  std::map<std::string, Attempt> attempts_;  // by path
  std::string waiting_for_;                  // what was said last, so that it is said once
};

}  // namespace stoker::evaluator
