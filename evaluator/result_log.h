// ResultLog: where a finished evaluation is recorded: result file, best.json, metrics row,
// TensorBoard; in that order, each exactly once per checkpoint however often the evaluator is
// killed in between.
//
// Threads: one.
// Errors:  kIoError, kNoSpace: recording may be tried again, nothing is doubled by that.
//          kInvalidArgument: the result has not the metric that is the goal.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/run/early_stop.h"
#include "shared/run/eval_result.h"
#include "shared/run/goal.h"
#include "shared/run/run_layout.h"

namespace stoker::evaluator {

class ResultLog {
 public:
  // `tensorboard` false: no event file. Reads back the rows and the best that are there.
  static Result<std::unique_ptr<ResultLog>> open(FileSystem& files, const run::RunLayout& layout,
                                                 run::Goal goal, bool tensorboard);
  ~ResultLog();

  Status record(const run::EvalResult& result);
  // The result that is on disk for this very checkpoint, if an evaluation was finished before a
  // crash.
  std::optional<run::EvalResult> maybe_recorded(uint64_t step,
                                                const std::string& manifest_sha256) const;
  const std::optional<run::Best>& best() const { return best_; }
  // The goal's values of all evaluations up to that of `step`, in the order of their steps. Of a
  // step that was evaluated twice (the run went back and did it anew) the later one counts.
  std::vector<run::GoalPoint> history(uint64_t step) const;

 private:
  struct Sinks;
  ResultLog(FileSystem& files, const run::RunLayout& layout, run::Goal goal);
  void note_value(uint64_t step, const std::string& set, const run::MetricValues& metrics);
  Status draw(uint64_t step, const run::SetResult& set);
  Status update_best(const run::EvalResult& result);

  FileSystem& files_;
  const run::RunLayout layout_;
  const run::Goal goal_;
  std::map<uint64_t, double> values_;  // of the goal, by step
  std::optional<run::Best> best_;
  std::set<std::string> rows_;  // "step set manifest": in eval.jsonl already
  std::unique_ptr<Sinks> sinks_;
};

}  // namespace stoker::evaluator
