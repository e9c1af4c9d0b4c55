// GrowingData: data.train of a run in which it grows: what it is from which ticket on, through all
// starts of the run.
//
// Threads:  one, the trainer's; the watch has a thread of its own.
// Blocking: open() as indexing does; take_in() waits for the disk.
// Errors:   those of opening a data set and of growth_history.h.
// Crash:    what is trained on from a ticket on is written down before the first step with it; until
//           then it is as if it had not been found.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/daemon_app/growth_watch.h"
#include "shared/base/coordinator.h"
#include "shared/checkpoint/manifest.h"
#include "shared/config/config.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/sample_plan.h"
#include "shared/feed/growth_history.h"
#include "shared/run/run_layout.h"

namespace stoker::daemon_app {

class GrowingData {
 public:
  // Both must outlive this object.
  GrowingData(const config::Config& config, const run::RunLayout& layout)
      : config_(config), layout_(layout) {}

  // What the run trains on from `ticket` on. `maybe_saved`: of the checkpoint it goes on from; what
  // that says holds where the run directory does not say the same and more. Nothing is written.
  Result<std::unique_ptr<dataset::Dataset>> open(uint64_t ticket,
                                                 const checkpoint::Manifest* maybe_saved,
                                                 const dataset::ScanProgress& progress);
  // Writes down what open() found, once it is sure that the run goes on with it.
  Status keep() const;

  // Of what is open.
  const feed::PlanStart& plan_start() const { return now_.began; }
  std::string index_dir() const { return feed::index_dir_of(layout_.index(), now_); }
  // The fingerprint of what the step before `ticket` was trained on.
  std::string digest_before(uint64_t ticket) const;
  // For a checkpoint of what is open.
  std::vector<checkpoint::DataState> history() const;

  // Looks for more from now on, on a thread of `coordinator`, which ends before `data` does.
  void watch(const dataset::Dataset& data, Coordinator& coordinator);
  // Whether another state of the data holds from `ticket` on, the beginning of a step: one that
  // is known, or one that was found and may join here.
  bool is_new_at(uint64_t ticket, const dataset::SamplePlan& plan) const;
  // Writes down what was found, for `ticket` and after; the watch has ended.
  Status take_in(uint64_t ticket, const dataset::SamplePlan& plan);

 private:
  Result<std::unique_ptr<dataset::Dataset>> open_state(const dataset::ScanProgress& progress);
  const feed::DataState* maybe_next() const;  // the state after the open one, where it is known
  std::string next_dir() const;

  const config::Config& config_;
  const run::RunLayout& layout_;
  feed::GrowthHistory history_;
  feed::DataState now_;  // of history_
  std::unique_ptr<GrowthWatch> watch_;
};

}  // namespace stoker::daemon_app
