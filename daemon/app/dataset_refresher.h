// DatasetRefresher: opens the version of a refreshable data.train that applies at a ticket, and
// records at which ticket each version starts, across all starts of the run.
//
// Threads:  the trainer thread; the monitor runs on a separate thread.
// Blocking: open() for the indexing; apply_refresh() for the disk.
// Errors:   those of opening a dataset and of dataset_versions.h.
// Crash:    a new version is recorded before the first step that uses it; before that, it is
//           detected again after a restart.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/app/dataset_monitor.h"
#include "shared/base/coordinator.h"
#include "shared/checkpoint/manifest.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"
#include "shared/data/files/scan.h"
#include "shared/data/order/sample_plan.h"
#include "shared/feed/dataset_versions.h"
#include "shared/feed/worker_pool.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

class DatasetRefresher {
 public:
  // Both must outlive this object.
  DatasetRefresher(const config::Config& config, const run::RunLayout& layout)
      : config_(config), layout_(layout) {}

  // The dataset from `ticket` on. `maybe_saved`: the manifest of the checkpoint that the run
  // resumes from; its dataset versions apply unless those of the run directory extend them. Writes
  // nothing.
  Result<std::unique_ptr<data::Dataset>> open(uint64_t ticket,
                                              const checkpoint::Manifest* maybe_saved,
                                              const data::files::ScanProgress& progress);
  // In a group the chief calls open(). The others open the same version through its index, whatever the
  // data is by now; `text`: its version_text().
  std::string version_text() const;
  Result<std::unique_ptr<data::Dataset>> open_version(const std::string& text);
  // Records the version that open() chose, when it is certain that the run resumes with it.
  Status save() const;

  // Of the open version.
  const feed::PlanStart& plan_start() const { return now_.start; }
  std::string index_dir() const { return feed::index_dir_for(layout_.index_dir(), now_); }
  // The fingerprint of the version used by the step before `ticket`.
  std::string fingerprint_before(uint64_t ticket) const;
  // The versions up to the open one, for a checkpoint.
  std::vector<checkpoint::DatasetVersion> history() const;

  // Starts monitoring for new data on a thread of `coordinator`, which `data` must outlive.
  void watch(const data::Dataset& data, Coordinator& coordinator);
  // Whether a new version starts at `ticket`, the first of a step: a recorded one, or one that was
  // detected and can start here.
  bool has_new_version_at(uint64_t ticket, const data::order::SamplePlan& plan) const;
  // Records the detected version, starting at `ticket`. The monitor must have stopped.
  Status apply_refresh(uint64_t ticket, const data::order::SamplePlan& plan);

 private:
  Result<std::unique_ptr<data::Dataset>> open_state(const data::files::ScanProgress& progress);
  Result<std::unique_ptr<data::Dataset>> scan(const std::string& index_dir,
                                              const data::files::ScanProgress& progress) const;
  // The recorded version after the open one; null: none.
  const feed::DatasetVersion* find_next() const;
  std::string next_dir() const;
  uint64_t cache_bytes() const { return feed::in_process_cache_budget(config_.feed); }

  const config::Config& config_;
  const run::RunLayout& layout_;
  feed::DatasetVersions history_;
  feed::DatasetVersion now_;  // of history_
  std::unique_ptr<DatasetMonitor> monitor_;
};

}  // namespace stoker::app
