// EndToEndRun: a stokerd that trains a small GPT while it is measured, and a stoker-eval beside it.
//
// Threads:  one.
// Blocking: start() until the first steps are done; median_step_ms() for as long as it is told.
// Owner:    the processes end and the folder goes with this object.
// Errors:   kNotFound: the programs do not stand beside this one; kClosed: stokerd has ended, with
//           the end of its log; kTimedOut.
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
  kCounter,  // a thread that only counts, as nice as an evaluator: what any neighbour costs here
  kEvaluator,
  kIdleEvaluator,
  kStoppedEvaluator,
  kKilledEvaluators
};
enum class Saving { kNever, kEachSecond, kAlways };

class EndToEndRun {
 public:
  static Result<std::shared_ptr<EndToEndRun>> start(const std::string& dir, bool tiny);

  // The median time of the steps that are taken in `time`, in milliseconds.
  Result<double> median_step_ms(BackgroundLoad background, Saving saving,
                                std::chrono::nanoseconds time);

 private:
  EndToEndRun(std::shared_ptr<ScratchFolder> folder, ChildProcess trainer)
      : folder_(std::move(folder)), trainer_(std::move(trainer)) {}
  Status begin(BackgroundLoad background);
  Status pass_time(BackgroundLoad background, Saving saving, std::chrono::nanoseconds time);
  Status start_evaluator(const std::string& priority);
  Status wait_for_first_steps();
  std::string rows_path() const { return folder_->file("run/metrics/train.jsonl"); }

  std::shared_ptr<ScratchFolder> folder_;
  ChildProcess trainer_;
  std::optional<ChildProcess> evaluator_;
  std::string priority_;  // of the evaluator
  std::jthread counter_;
};

}  // namespace stoker::bench
