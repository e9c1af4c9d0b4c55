// TensorBoard summary: the data of a run that TensorBoard shows in addition to the curves: hyperparameters,
// the model graph and the first samples.
//
// Threads:  the trainer thread.
// Blocking: for the copy of a few samples; the rest runs on the thread of the metrics writer.
// Owner:    the metrics must outlive the function of first_batch_summarizer().
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

namespace stoker::app {

// All without an effect if metrics.tensorboard is false.
//
// The hyperparameters and the charts of a new run. `training_metrics`: their names.
void write_start_summary(const config::Config& config,
                         const std::vector<std::string>& training_metrics, Clock& clock,
                         metrics::MetricsWriter& metrics);
// The graph of a new run, from the files of its dataset to the optimizer. `traced`: the part from the
// batch to the loss.
void write_graph(const config::Config& config, const data::DatasetInfo& data,
                 train::TracedGraph traced, metrics::MetricsWriter& metrics);
// That the run has finished.
void write_end_summary(Clock& clock, metrics::MetricsWriter& metrics);

// Empty if there is nothing to show.
std::function<void(const feed::ReceivedBatch&)> first_batch_summarizer(
    const config::Config& config, const data::DatasetInfo& data, metrics::MetricsWriter& metrics);

}  // namespace stoker::app
