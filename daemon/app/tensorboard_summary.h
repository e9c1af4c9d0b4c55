// TensorBoard summary: writes the data of a run that TensorBoard shows in addition to the curves:
// hyperparameters, the model graph and the first samples.
//
// Threads:  write_start_summary() and write_end_summary(): one thread; write_graph() and the function
//           returned by first_batch_summarizer(): the trainer thread.
// Blocking: the first two for the disk. The trainer only waits for the copy of a few samples; the
//           rest runs on the thread of the metrics writer.
// Owner:    the metrics must outlive the function of first_batch_summarizer(); the layout and the
//           clock the metrics.
// Errors:   logged; training is not affected.
#pragma once

#include <functional>
#include <string_view>

#include "daemon/train/graph_tracer.h"
#include "shared/base/clock.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"
#include "shared/feed/batch_receiver.h"
#include "shared/metrics/metrics_writer.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

// Writes the hyperparameters and the charts of a new run to a separate file in RUN/tensorboard.
// `training_metrics`: their names.
void write_start_summary(const config::Config& config,
                         const std::vector<std::string>& training_metrics,
                         const run::RunLayout& layout, Clock& clock);
// Writes the graph of a new run, from the files of its dataset to the optimizer, to another one.
// `traced`: the part from the batch to the loss.
void write_graph(const config::Config& config, const data::Dataset& data, train::TracedGraph traced,
                 const run::RunLayout& layout, Clock& clock, metrics::MetricsWriter& metrics);
// Records that the run has finished.
void write_end_summary(const config::Config& config, const run::RunLayout& layout, Clock& clock);

// Empty if there is nothing to show.
std::function<void(const feed::ReceivedBatch&)> first_batch_summarizer(
    const config::Config& config, const data::Dataset& data, metrics::MetricsWriter& metrics);

}  // namespace stoker::app
