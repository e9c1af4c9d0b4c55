// DatasetRefresher: data.train of a run in which it grows: what it is from which ticket on, through all
// starts of the run.
//
// Threads:  one, the trainer's; the watch has a thread of its own.
// Blocking: open() as indexing does; apply_refresh() waits for the disk.
// Errors:   those of opening a data set and of dataset_versions.h.
// Crash:    what is trained on from a ticket on is written down before the first step with it; until
//           then it is as if it had not been found.
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
#include "shared/run/run_layout.h"

namespace stoker::app {

class DatasetRefresher {
 public:
  // Both must outlive this object.
  DatasetRefresher(const config::Config& config, const run::RunLayout& layout)
      : config_(config), layout_(layout) {}

  // The dataset from `ticket` on. `maybe_saved`: the manifest of the checkpoint that the run resumes
  // from; its dataset versions apply unless those of the run directory extend them. Writes nothing.
  Result<std::unique_ptr<data::Dataset>> open(uint64_t ticket,
                                              const checkpoint::Manifest* maybe_saved,
                                              const data::files::ScanProgress& progress);
  // Records what open() found, after it is certain that the run resumes with it.
  Status save() const;

  // Of what is open.
  const feed::PlanStart& plan_start() const { return now_.start; }
  std::string index_dir() const { return feed::index_dir_for(layout_.index_dir(), now_); }
  // The fingerprint of what the step before `ticket` was trained on.
  std::string fingerprint_before(uint64_t ticket) const;
  // For a checkpoint of what is open.
  std::vector<checkpoint::DatasetVersion> history() const;

  // Looks for more from now on, on a thread of `coordinator`, which ends before `data` does.
  void watch(const data::Dataset& data, Coordinator& coordinator);
  // Whether another state of the data holds from `ticket` on, the beginning of a step: one that
  // is known, or one that was found and may join here.
  bool has_new_version_at(uint64_t ticket, const data::order::SamplePlan& plan) const;
  // Writes down what was found, for `ticket` and after; the watch has ended.
  Status apply_refresh(uint64_t ticket, const data::order::SamplePlan& plan);

 private:
  Result<std::unique_ptr<data::Dataset>> open_state(const data::files::ScanProgress& progress);
  const feed::DatasetVersion* find_next() const;  // the state after the open one, where it is known
  std::string next_dir() const;

  const config::Config& config_;
  const run::RunLayout& layout_;
  feed::DatasetVersions history_;
  feed::DatasetVersion now_;  // of history_
  std::unique_ptr<DatasetMonitor> monitor_;
};

}  // namespace stoker::app
