// CheckpointWriter: turns snapshots into checkpoints while training goes on, one at a time.
//
// Threads:  try_begin() and submit() from the trainer's thread; run() on one thread of a
//           Coordinator; the rest from any thread.
// Blocking: wait_idle() at most `timeout`; the others never. When busy: try_begin() gives nothing,
//           and the caller decides whether that counts as skipped; snapshots are never queued up.
// Owner:    one snapshot's memory. Store, clock and what the settings call must outlive this
//           object.
// Errors:   a commit that fails is tried again after each of `delays`, then given up: on_done gets
//           the last error, and stats().degraded holds until a later one succeeds. It never ends
//           training.
// Crash:    what is not acknowledged is not visible: see CheckpointStore.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "daemon/checkpoint/snapshot.h"
#include "shared/base/clock.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"

namespace stoker::checkpoint {

struct WriterOptions {
  // Removes what retention does not keep: after each commit, and before one for which the disk has
  // no room (is_disk_full).
  std::function<void(bool is_disk_full)> delete_expired;
  // Makes sure that what belongs to the steps so far is on disk before the checkpoint is. May be empty.
  std::function<void()> before_commit;
  PinnedAllocator pinned_allocator = {};  // of the snapshot's memory
  std::vector<std::chrono::milliseconds> delays = {std::chrono::seconds(1),
                                                   std::chrono::seconds(4)};
};

struct WriterStats {
  uint64_t last_step = 0;  // last acknowledged; 0 = none by this process
  uint64_t saved = 0;
  uint64_t failures = 0;  // commits that failed, tries counted
  uint64_t skipped = 0;   // asked for while one was in flight
  double last_ms = 0;     // from submit() to the acknowledgement, of the last one
  uint64_t last_bytes = 0;
  bool in_flight = false;
  bool degraded = false;  // the last one submitted was given up
  std::string last_error;
};

class CheckpointWriter {
 public:
  using OnDone = std::function<void(Result<checkpoint::Manifest>)>;

  CheckpointWriter(checkpoint::CheckpointStore& store, WriterOptions options,
                   Clock& clock = system_clock());

  // The snapshot to fill, or nothing while one is in flight. submit() must follow.
  Snapshot* try_begin();
  // `on_done` is called on the writing thread.
  void submit(OnDone on_done);
  void increment_skipped();

  // True when nothing is in flight.
  bool wait_idle(std::chrono::milliseconds timeout) const;
  WriterStats stats() const;
  bool is_degraded() const;  // of stats(), for who asks at each step

  // Body of the writing thread. When stopped it first writes what was submitted, without delays.
  Status run(std::stop_token stop);

 private:
  enum class Phase { kIdle, kFilling, kSubmitted };

  Result<checkpoint::Manifest> write(std::stop_token stop);
  Result<checkpoint::Manifest> try_write(int attempt);
  void free_disk_space();
  void record_result(const Result<checkpoint::Manifest>& result, double ms);

  checkpoint::CheckpointStore& store_;
  const WriterOptions options_;
  Clock& clock_;

  // The trainer's while kFilling, the writing thread's while kSubmitted.
  Snapshot snapshot_;

  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  // Guarded by mutex_.
  Phase phase_ = Phase::kIdle;
  OnDone on_done_;
  std::chrono::nanoseconds submitted_at_{0};
  WriterStats stats_;
};

}  // namespace stoker::checkpoint
