// MetricsSink: the interface through which the trainer reports its measurements.
//
// Threads:   the trainer thread only.
// Blocking:  never.
// Ownership: the implementation must outlive the trainer.
// Errors:    none are returned; only save_profile() reports them, to its caller's Done.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/train/graph_tracer.h"
#include "daemon/train/mailbox.h"
#include "daemon/train/step_profiler.h"
#include "shared/feed/batch_receiver.h"
#include "shared/metrics/metrics_record.h"
#include "shared/metrics/tensor_summary.h"

namespace stoker::train {

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;

  // Returns the length of train.jsonl in bytes including this record, for the manifest.
  virtual uint64_t report(const metrics::TrainMetrics& record) = 0;
  // The first batch of a new run, before it is trained on. Its memory is valid during the call only.
  virtual void report_first_batch(const feed::ReceivedBatch& batch) = 0;
  // The graph of a new run, after its first step.
  virtual void report_graph(TracedGraph graph) = 0;
  virtual void report_histograms(uint64_t step, std::vector<metrics::NamedSummary> summaries) = 0;
  // Writes the profile and replies through `done`, both on another thread; or replies kBusy through
  // `done` before it returns.
  virtual void save_profile(RecordedProfile recorded, Done done) = 0;
};

}  // namespace stoker::train
