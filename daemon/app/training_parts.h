// TrainingParts: what one trainer works with: data, plan, state, ring and readers, rows, checkpoints. A
// run that goes back to a checkpoint, or whose data has grown, gets new ones.
//
// Threads:  made, used and ended by the trainer's thread; add_live() from any while it holds them.
// Blocking: shut_down(): as ending the readers does, and until what was handed to the writers is
//           written, at most 10 s each; the rest as opening files does.
// Owner:    config, layout and clock must outlive this object.
// Errors:   those of the parts.
#pragma once

#include <memory>
#include <optional>

#include "daemon/checkpoint/checkpoint_writer.h"
#include "daemon/checkpoint/retention_manager.h"
#include "daemon/supervisor/feed_supervisor.h"
#include "daemon/train/training_state.h"
#include "shared/base/clock.h"
#include "shared/base/coordinator.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/control/trainer_status.h"
#include "shared/data/dataset.h"
#include "shared/data/order/sample_plan.h"
#include "shared/metrics/metrics_writer.h"
#include "shared/ring/shm_ring.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

struct TrainingParts {
  TrainingParts(std::unique_ptr<data::Dataset> opened, const data::order::PlanOptions& options)
      : data(std::move(opened)), plan(options) {}

  // Rows and checkpoints, from `resume` on.
  Status open_outputs(const config::Config& config, const run::RunLayout& layout, Clock& clock);
  // Ring and readers, from the state's ticket on.
  Status start_feed(const config::Config& config, const run::RunLayout& layout,
                    const std::string& index_dir, Clock& clock);
  // Stops filling the ring first, then writes everything that the writers were given.
  Status shut_down();
  // What the ring, the readers and the checkpoint writer know of the status.
  void add_live(control::TrainerStatus& status) const;

  std::unique_ptr<data::Dataset> data;
  data::order::SamplePlan plan;
  std::unique_ptr<train::TrainingState> state;
  checkpoint::Manifest manifest;  // what all checkpoints of this run share
  std::optional<metrics::ResumePosition> resume;
  supervisor::SampleErrorHistory sample_errors;
  bool save_after_resume = false;  // or the next start would need to be allowed the same changes
  std::unique_ptr<ring::ShmRing> ring;
  std::unique_ptr<metrics::MetricsWriter> metrics;
  std::unique_ptr<checkpoint::CheckpointStore> store;
  std::unique_ptr<checkpoint::RetentionManager> retention_manager;
  std::unique_ptr<checkpoint::CheckpointWriter> writer;
  std::unique_ptr<supervisor::FeedSupervisor> feed;
  // Destroyed first, in the reverse order.
  Coordinator writers;
  Coordinator feeders;
  Coordinator watchers;  // of data that grows

 private:
  void add_feed(control::TrainerStatus::Feed& of_status) const;
};

}  // namespace stoker::app
