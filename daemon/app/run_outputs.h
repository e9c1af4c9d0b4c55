// RunOutputs: what training writes into the run directory: records, TensorBoard files, profiles and checkpoints, on two
// threads, and which checkpoints are deleted again.
//
// Only the chief has records; without open_records() the functions of MetricsSink have no effect.
//
// Threads:   the trainer thread; writer() has its own synchronization.
// Blocking:  open_records() and close() for the disk, close() up to 20 s; the others never.
// Ownership: what the constructor takes by reference must outlive this object.
// Errors:    open_records(): those of MetricsWriter::open(). close(): the first of the threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/train/metrics_sink.h"
#include "daemon/writer/checkpoint_writer.h"
#include "daemon/writer/retention_manager.h"
#include "shared/base/clock.h"
#include "shared/base/coordinator.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/config/load_config.h"
#include "shared/data/dataset.h"
#include "shared/metrics/metrics_writer.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

class RunOutputs final : public train::MetricsSink {
 public:
  // `data`: what the records are about, for TensorBoard.
  RunOutputs(const config::Config& config, const run::RunLayout& layout,
             const data::DatasetInfo& data, checkpoint::CheckpointStore& store,
             const eval_metrics::MetricTable& metric_table, Clock& clock);
  ~RunOutputs() override { (void)close(); }

  // From the position `resume` on, or of a new run, with these metrics of its training.
  Status open_records(const std::vector<std::string>& training_metrics,
                      const std::optional<metrics::ResumePosition>& resume);
  // What the checkpoint writer has to do with the other files. A caller can add to it.
  writer::WriterOptions writer_options();
  // The threads, once.
  void start(writer::WriterOptions saving);
  // Writes everything that was passed on until now. Further calls have no effect.
  Status close();

  writer::CheckpointWriter& writer() { return *writer_; }
  const writer::CheckpointWriter& writer() const { return *writer_; }
  uint64_t metrics_bytes() const { return metrics_ ? metrics_->position() : 0; }  // of train.jsonl
  // A live setting has changed, with the configuration in effect.
  void record_setting(uint64_t step, const config::Config& config,
                      const config::SettingChange& change);
  void record_end();  // the run has finished

  // MetricsSink
  uint64_t report(const metrics::TrainMetrics& record) override;
  void report_first_batch(const feed::ReceivedBatch& batch) override;
  void report_graph(train::TracedGraph graph) override;
  void report_histograms(uint64_t step, std::vector<metrics::NamedSummary> summaries) override;
  void save_profile(train::RecordedProfile recorded, train::Done done) override;

 private:
  void flush_records();

  const config::Config& config_;
  const run::RunLayout& layout_;
  const data::DatasetInfo& data_;
  checkpoint::CheckpointStore& store_;
  Clock& clock_;
  std::unique_ptr<metrics::MetricsWriter> metrics_;  // null on other ranks than the chief
  writer::RetentionManager retention_;
  std::unique_ptr<writer::CheckpointWriter> writer_;
  std::function<void(const feed::ReceivedBatch&)>
      summarize_first_batch_;  // empty: nothing to report
  bool is_running_ = false;
  Coordinator threads_;  // of the objects above, so destroyed first
};

}  // namespace stoker::app
