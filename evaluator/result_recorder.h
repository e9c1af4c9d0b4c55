// ResultRecorder: records a finished evaluation: artifacts, result file, best.json, metrics records
// and TensorBoard, in that order. Each is written exactly once per checkpoint, even if the
// evaluator is killed in between.
//
// The result file commits an evaluation. Everything after it is derived from it and is completed by
// the next start after a crash. best.json is derived from the metrics records and rebuilt if it is
// missing or corrupt.
//
// Results of checkpoints that the present state does not descend from (run::Lineage) stay in
// eval.jsonl, but nothing else is derived from them: after a resume from an earlier checkpoint, best.json
// is that of the present branch, and TensorBoard's curves have one point per step.
//
// Threads: one.
// Errors:  kIoError, kNoSpace: record() can be retried and does not duplicate anything.
//          kInvalidArgument: the result does not have the metric of eval.monitor. open(): also
//          kCorrupt, if a line of eval.jsonl is not a record.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "evaluator/artifact.h"
#include "evaluator/best_tracker.h"
#include "shared/base/file.h"
#include "shared/metrics/event_file.h"
#include "shared/metrics/metrics_record.h"
#include "shared/run/early_stopping.h"
#include "shared/run/eval_result.h"
#include "shared/run/lineage.h"
#include "shared/run/run_layout.h"

namespace stoker::evaluator {

class ResultRecorder {
 public:
  // Without `tensorboard`, no event files are written. Reads the existing results and completes
  // those that a crash left partially recorded.
  static Result<std::unique_ptr<ResultRecorder>> open(FileSystem& files,
                                                      const run::RunLayout& layout,
                                                      run::Monitor monitor,
                                                      eval_metrics::MetricTable table,
                                                      bool tensorboard);
  ~ResultRecorder();

  // Reads the lineage again if it has changed. True: the run has left the branch of earlier results.
  Result<bool> update_lineage();
  const run::Lineage& lineage() const { return lineage_; }

  Status record(const run::EvalResult& result, const std::vector<Artifact>& artifacts = {});
  // The stored result of this checkpoint, if its evaluation finished before a crash.
  std::optional<run::EvalResult> find_recorded(uint64_t step,
                                               const std::string& manifest_sha256) const;
  // Step and manifest of every result that open() found.
  struct Found {
    uint64_t step = 0;
    std::string manifest_sha256;
  };
  const std::vector<Found>& found() const { return found_; }

  const std::optional<run::BestCheckpoint>& best() const { return best_; }
  // Values of the monitored metric up to `step` on the present branch, in step order.
  std::vector<run::MonitorValue> history(uint64_t step) const { return values_.history(step); }

 private:
  struct Sinks;
  ResultRecorder(FileSystem& files, const run::RunLayout& layout, run::Monitor monitor,
                 eval_metrics::MetricTable table);
  Status read_records();
  void restore_best();
  void restore_values();
  Status add_missing_results();
  bool has_all_records(const run::EvalResult& result) const;
  // The part of record() after the result file.
  Status add_missing_records(const run::EvalResult& result);
  Status add_record(const run::EvalResult& result, const run::DatasetResult& dataset);
  Status write_tensorboard(uint64_t step, const run::DatasetResult& dataset);
  void add_events(metrics::EventFile& events, uint64_t step, const run::DatasetResult& dataset);
  Result<std::unique_ptr<metrics::EventFile>> create_event_file(const std::string& dataset);
  uint64_t last_unchanged_step() const;
  Status write_best();

  FileSystem& files_;
  const run::RunLayout layout_;
  const run::Monitor monitor_;
  const eval_metrics::MetricTable table_;
  BestTracker values_;
  run::Lineage lineage_;
  std::string lineage_stamp_;                // of the file
  std::optional<run::BestCheckpoint> best_;  // contents of best.json
  std::vector<metrics::EvalMetrics> rows_;   // of eval.jsonl
  std::set<std::string> records_;            // "step dataset manifest created" of eval.jsonl
  std::vector<Found> found_;
  std::unique_ptr<Sinks> sinks_;
};

}  // namespace stoker::evaluator
