// Profile files: what `stokerctl profile` leaves in the run directory.
//
// Threads:  the trainer's; the files are written on the metrics writer's.
// Blocking: never.
// Errors:   `done` is answered with them: kBusy where the writer has no room, and the file
//           system's.
#pragma once

#include "daemon/train/mailbox.h"
#include "daemon/train/step_profiler.h"
#include "shared/metrics/metrics_writer.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

// profiles/step-N.json, N being the last of its steps, and step-N.kernels.json where LibTorch's own
// profile was asked for; then answers with a summary. All must outlive `writer`.
void save_profile(metrics::MetricsWriter& writer, const run::RunLayout& layout,
                  train::TakenProfile taken, train::Done done);

}  // namespace stoker::app
