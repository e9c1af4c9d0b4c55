// EndToEndRun: runs stokerd with a small GPT, and optionally stoker-eval, while step times are
// measured.
//
// Threads:   one.
// Blocking:  start() until the first steps are done; step_ms() for `time` and a short
//            settling time.
// Ownership: destroying the object ends the processes and removes the folder.
// Errors:    kNotFound: the programs are not in the folder of this one; kClosed: stokerd has
//            exited, with the end of its log; kTimedOut.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "bench/child_process.h"
#include "bench/scratch_folder.h"

namespace stoker::bench {

enum class BackgroundLoad {
  kNone,
  kBusyLoop,  // a busy loop with the nice value of an evaluator: the cost of any CPU load
  kEvaluator,
  kIdleEvaluator,
  kNormalEvaluator,
  kStoppedEvaluator,
  kKilledEvaluators
};
enum class Saving { kNever, kEachSecond, kAlways };
enum class TrainerThreads { kOne, kAll };
enum class StepTime { kMedian, kMean };

class EndToEndRun {
 public:
  static Result<std::shared_ptr<EndToEndRun>> start(const std::string& dir, bool tiny,
                                                    TrainerThreads threads);

  // The time in milliseconds of a step within `time`.
  Result<double> step_ms(BackgroundLoad background, Saving saving, std::chrono::nanoseconds time,
                         StepTime statistic = StepTime::kMedian);

 private:
  EndToEndRun(std::shared_ptr<ScratchFolder> folder, ChildProcess trainer, bool tiny)
      : folder_(std::move(folder)), trainer_(std::move(trainer)), tiny_(tiny) {}
  Status set_load(BackgroundLoad background);
  Status wait(BackgroundLoad background, Saving saving, std::chrono::nanoseconds time);
  Status start_evaluator(const std::string& priority);
  Status wait_for_first_steps();
  Status wait_for_first_evaluation();
  std::string rows_path() const { return folder_->file("run/metrics/train.jsonl"); }

  std::shared_ptr<ScratchFolder> folder_;
  ChildProcess trainer_;
  const bool tiny_;
  std::optional<ChildProcess> evaluator_;
  std::string priority_;  // eval.priority of the evaluator
  std::jthread busy_loop_;
};

}  // namespace stoker::bench
