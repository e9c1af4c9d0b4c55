// ResultRecorder: where a finished evaluation is recorded: views, result file, best.json, metrics rows,
// TensorBoard; in that order, each exactly once per checkpoint however often the evaluator is
// killed in between.
//
// The result file is what makes an evaluation done. All after it follows from it, and is completed
// by the next start where a crash came in between. best.json follows from the rows: lost or
// damaged, it is made anew.
//
// Threads: one.
// Errors:  kIoError, kNoSpace: recording may be tried again, nothing is doubled by that.
//          kInvalidArgument: the result has not the metric that is the goal. open(): also kCorrupt,
//          eval.jsonl has a line that is no row.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "evaluator/artifact.h"
#include "evaluator/best_tracker.h"
#include "shared/base/file.h"
#include "shared/run/early_stopping.h"
#include "shared/run/eval_result.h"
#include "shared/run/monitor.h"
#include "shared/run/run_layout.h"

namespace stoker::evaluator {

class ResultRecorder {
 public:
  // `tensorboard` false: no event file. Reads back what is there, and completes what a crash left
  // half recorded.
  static Result<std::unique_ptr<ResultRecorder>> open(FileSystem& files,
                                                      const run::RunLayout& layout,
                                                      run::Monitor monitor, bool tensorboard);
  ~ResultRecorder();

  Status record(const run::EvalResult& result, const std::vector<Artifact>& artifacts = {});
  // The result that is on disk for this very checkpoint, if an evaluation was finished before a
  // crash.
  std::optional<run::EvalResult> find_recorded(uint64_t step,
                                               const std::string& manifest_sha256) const;
  // Step and manifest of every result that open() found on the disk.
  struct Found {
    uint64_t step = 0;
    std::string manifest_sha256;
  };
  const std::vector<Found>& found() const { return found_; }

  const std::optional<run::BestCheckpoint>& best() const { return best_; }
  // The goal's values of all evaluations up to that of `step`, in the order of their steps. Of a
  // step that was evaluated twice (the run went back and did it anew) the later one counts.
  std::vector<run::MonitorValue> history(uint64_t step) const { return values_.history(step); }

 private:
  struct Sinks;
  ResultRecorder(FileSystem& files, const run::RunLayout& layout, run::Monitor monitor);
  Status read_records();
  void restore_best();
  Status complete_results();
  bool has_all_records(const run::EvalResult& result) const;
  // All of record() that follows from the result file.
  Status complete(const run::EvalResult& result);
  Status add_record(const run::EvalResult& result, const run::DatasetResult& dataset);
  Status write_tensorboard(uint64_t step, const run::DatasetResult& dataset);
  Status write_best();

  FileSystem& files_;
  const run::RunLayout layout_;
  const run::Monitor monitor_;
  BestTracker values_;
  std::optional<run::BestCheckpoint> best_;  // as best.json has it
  std::set<std::string> records_;            // "step set manifest": in eval.jsonl already
  std::vector<Found> found_;
  std::unique_ptr<Sinks> sinks_;
};

}  // namespace stoker::evaluator
