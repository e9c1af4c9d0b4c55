// Run views: what TensorBoard shows of a run beside its curves: the settings that decide it, what
// its model is made of, and the samples that it sees first.
//
// Threads:  write_start_summary(), write_end_summary(): one thread; what first_batch_summarizer() gives: the trainer's.
// Blocking: the first two for the disk. The trainer waits for copies of a few samples only; the
//           rest is done on the thread of the metrics.
// Owner:    the plan and the metrics must outlive what first_batch_summarizer() gives.
// Errors:   trouble is logged, and no reason not to train.
#pragma once

#include <functional>

#include "shared/base/clock.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"
#include "shared/data/order/sample_plan.h"
#include "shared/metrics/metrics_writer.h"
#include "shared/model/model.h"
#include "shared/ring/shm_ring.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

// Of a run that begins: its settings and its model, in a file of their own in RUN/tensorboard.
void write_start_summary(const config::Config& config, const model::Model& model,
                         const run::RunLayout& layout, Clock& clock);
// That the run is finished.
void write_end_summary(const config::Config& config, const run::RunLayout& layout, Clock& clock);

// Empty where nothing is to be shown.
std::function<void(const ring::ReadyBatch&)> first_batch_summarizer(
    const config::Config& config, const data::Dataset& data, const data::order::SamplePlan& plan,
    metrics::MetricsWriter& metrics);

}  // namespace stoker::app
