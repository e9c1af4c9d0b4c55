// ResultLog: where a finished evaluation is recorded: result file, best.json, metrics row,
// TensorBoard; in that order, each exactly once per checkpoint however often the evaluator is
// killed in between.
//
// Threads: one.
// Errors:  kIoError, kNoSpace: recording may be tried again, nothing is doubled by that.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "shared/base/file.h"
#include "shared/run/eval_result.h"
#include "shared/run/run_layout.h"

namespace stoker::evaluator {

class ResultLog {
 public:
  // `tensorboard` false: no event file. Reads back the rows and the best that are there.
  static Result<std::unique_ptr<ResultLog>> open(FileSystem& files, const run::RunLayout& layout,
                                                 bool tensorboard);
  ~ResultLog();

  Status record(const run::EvalResult& result);
  // The result that is on disk for this very checkpoint, if an evaluation was finished before a
  // crash.
  std::optional<run::EvalResult> maybe_recorded(uint64_t step,
                                                const std::string& manifest_sha256) const;
  const std::optional<run::Best>& best() const { return best_; }

 private:
  struct Sinks;
  ResultLog(FileSystem& files, const run::RunLayout& layout);
  Status draw(uint64_t step, const run::SetResult& set);
  Status update_best(const run::EvalResult& result);

  FileSystem& files_;
  const run::RunLayout layout_;
  std::optional<run::Best> best_;
  std::set<std::string> rows_;  // "step set manifest": in eval.jsonl already
  std::unique_ptr<Sinks> sinks_;
};

}  // namespace stoker::evaluator
