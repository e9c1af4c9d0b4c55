// Profile files: writes the result of `stokerctl profile` to the run directory.
//
// Threads:  the trainer thread; the files are written on the thread of the metrics writer.
// Blocking: never.
// Errors:   replied through `done`: kBusy if the writer's queue is full, and file system errors.
#pragma once

#include "daemon/train/mailbox.h"
#include "daemon/train/step_profiler.h"
#include "shared/metrics/metrics_writer.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

// Writes profiles/step-N.json, where N is the last profiled step, and step-N.kernels.json if a
// LibTorch profile was requested; then replies with a summary. All must outlive `writer`.
void save_profile(metrics::MetricsWriter& writer, const run::RunLayout& layout,
                  train::RecordedProfile recorded, train::Done done);

}  // namespace stoker::app
