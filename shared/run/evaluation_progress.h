// EvaluationProgress: how far the evaluator is with a checkpoint, in RUN/eval/progress.json, for
// `stokerctl evaluate --wait`. The file exists during an evaluation of more than a second.
//
// Threads:  the writer from one thread; any process may read.
// Blocking: a short write, at most once a second, without a sync.
// Errors:   ignored: nothing depends on the file.
// Crash:    a file of an evaluator that was killed remains until the next one starts.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/run/run_layout.h"

namespace stoker::run {

struct EvaluationProgress {
  uint64_t step = 0;
  uint64_t done = 0;  // samples of all datasets
  uint64_t total = 0;

  bool operator==(const EvaluationProgress&) const = default;
};

class EvaluationProgressWriter {
 public:
  // All must outlive this object. Removes the file of an evaluation that was interrupted.
  EvaluationProgressWriter(FileSystem& files, Clock& clock, const RunLayout& layout);
  EvaluationProgressWriter(const EvaluationProgressWriter&) = delete;
  EvaluationProgressWriter& operator=(const EvaluationProgressWriter&) = delete;
  ~EvaluationProgressWriter();  // removes the file

  void write(const EvaluationProgress& progress);

 private:
  FileSystem& files_;
  Clock& clock_;
  const RunLayout& layout_;
  std::chrono::nanoseconds last_written_;
};

// At the start of an evaluator: the progress of one that was killed.
void remove_evaluation_progress(FileSystem& files, const RunLayout& layout);

// Empty: there is none, or it is just being written.
std::optional<EvaluationProgress> read_evaluation_progress(const RunLayout& layout);

}  // namespace stoker::run
