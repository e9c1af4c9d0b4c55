// RetentionManager: deletes the checkpoints of a run that its retention policy does not keep.
//
// Threads:   the checkpoint writer thread; set_policy() from any.
// Blocking:  for the disk.
// Ownership: store, clock and layout must outlive this object.
// Errors:    logged; a failed deletion is retried the next time.
// Crash:     as CheckpointStore::delete_checkpoints().
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "shared/base/clock.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/retention/retention.h"
#include "shared/run/run_layout.h"

namespace stoker::writer {

class RetentionManager {
 public:
  // `table`: the metrics of the run, with those that the configuration monitors.
  RetentionManager(const config::Config& config, eval_metrics::MetricTable table,
                   checkpoint::CheckpointStore& store, const run::RunLayout& layout, Clock& clock);

  // The rules of another configuration, from the next deletion on.
  void set_policy(const config::Config& config);
  // `is_disk_full`: the disk has no room for the next checkpoint.
  void delete_expired(bool is_disk_full);

 private:
  static void log_unevaluated_deletions(const std::vector<retention::CheckpointInfo>& checkpoints,
                                        const std::vector<uint64_t>& deleted_steps,
                                        bool is_disk_full);
  void log_blocked_deletions(const std::vector<checkpoint::BlockedDeletion>& blocked);
  void log_incomplete(const std::vector<retention::RetentionDecision>& decisions);

  struct Rules {
    retention::RetentionPolicy policy;
    retention::RequiredInfo required;
  };
  Rules make_rules(const config::Config& config) const;
  Rules current_rules() const;

  const eval_metrics::MetricTable table_;
  checkpoint::CheckpointStore& store_;
  const run::RunLayout& layout_;
  Clock& clock_;

  mutable std::mutex mutex_;
  Rules rules_;  // guarded by mutex_

  // Only for the checkpoint writer thread. Checkpoints that cannot be deleted, because a process has them open or locks fail.
  std::map<uint64_t, std::chrono::nanoseconds> blocked_since_;
  std::set<uint64_t> logged_;  // blocked or incomplete checkpoints that were logged
};

}  // namespace stoker::writer
