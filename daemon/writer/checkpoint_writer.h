// CheckpointWriter: writes snapshots as checkpoints while training continues, one at a time.
//
// Threads:   reserve(), try_begin() and submit() from the trainer thread; run() on one thread of a
//            Coordinator; the rest from any thread.
// Blocking:  wait_idle() up to `timeout`; the others never. While a checkpoint is in progress,
//            try_begin() returns nullptr and the caller decides whether that counts as skipped.
//            Snapshots are never queued.
// Ownership: owns the memory of one snapshot. Store, clock and everything that the options refer to
//            must outlive this object.
// Errors:    a failed commit is retried after each of `delays` and then abandoned: on_done gets the
//            last error, and stats().degraded is set until a later commit succeeds. kPeerLost is not
//            retried. Whether training ends is up to the trainer.
// Crash:     an uncommitted checkpoint is not visible: see CheckpointStore.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "daemon/writer/snapshot.h"
#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/run/run_layout.h"

namespace stoker::writer {

struct WriterOptions {
  // Deletes the checkpoints that retention does not keep: after each commit, and before a commit
  // for which the disk has no room (is_disk_full).
  std::function<void(bool is_disk_full)> delete_expired;
  // Makes the files that belong to the steps so far durable before the checkpoint is committed. An
  // error prevents the commit. May be empty.
  std::function<Status()> before_commit;
  // Commits a checkpoint; empty: CheckpointStore::commit(). A process that writes a part only returns
  // the manifest that another one has committed.
  std::function<Result<checkpoint::Manifest>(const checkpoint::CheckpointContent&,
                                             const std::stop_token&)>
      commit;
  // After the last attempt to commit a snapshot. May be empty.
  std::function<void(const Result<checkpoint::Manifest>&, const std::stop_token&)> after_attempts;
  // Records the committed checkpoint, before retention. May be empty.
  std::function<void(const checkpoint::Manifest&)> after_commit;
  PinnedAllocator pinned_allocator = {};  // for the snapshot's memory
  std::vector<std::chrono::milliseconds> delays = {std::chrono::seconds(1),
                                                   std::chrono::seconds(4)};
};

struct WriterStats {
  uint64_t last_step = 0;  // last committed; 0 = none by this process
  uint64_t saved = 0;
  uint64_t failures = 0;  // failed commits, including retries
  uint64_t skipped = 0;   // requested while one was in progress
  double last_ms = 0;     // from submit() to the commit, of the last one
  uint64_t last_bytes = 0;
  bool in_flight = false;
  bool degraded = false;   // the last submitted one was abandoned
  std::string last_error;  // of the last failed commit; empty after a successful one
  StatusCode last_error_code = StatusCode::kOk;
};

class CheckpointWriter {
 public:
  using OnDone = std::function<void(Result<checkpoint::Manifest>)>;

  CheckpointWriter(checkpoint::CheckpointStore& store, WriterOptions options,
                   Clock& clock = system_clock());

  // Allocates the memory of a snapshot, unless a checkpoint is in progress. Throws std::bad_alloc.
  void reserve(uint64_t bytes);
  // Returns the snapshot to fill, or nullptr while one is in progress. submit() must follow.
  Snapshot* try_begin();
  // Called on the writer thread. An attempt that follows a failed one starts with 0 bytes again.
  using OnProgress = std::function<void(uint64_t bytes, uint64_t total_bytes)>;

  // `on_done` is called on the writer thread, `on_progress` before it.
  void submit(OnDone on_done, OnProgress on_progress = {});
  void increment_skipped();

  // True if no checkpoint is in progress.
  bool wait_idle(std::chrono::milliseconds timeout) const;
  WriterStats stats() const;
  bool is_degraded() const;  // stats().degraded, cheap enough for every step

  // Body of the writer thread. After a stop it first writes a submitted snapshot, without retry
  // delays.
  Status run(std::stop_token stop);

 private:
  enum class Phase { kIdle, kFilling, kSubmitted };

  Result<checkpoint::Manifest> write(std::stop_token stop);
  Result<checkpoint::Manifest> try_write(int attempt, const std::stop_token& stop);
  void free_disk_space();
  void record_result(const Result<checkpoint::Manifest>& result, double ms);

  checkpoint::CheckpointStore& store_;
  const WriterOptions options_;
  Clock& clock_;

  // Owned by the trainer thread while kFilling, by the writer thread while kSubmitted.
  Snapshot snapshot_;

  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  // Guarded by mutex_.
  Phase phase_ = Phase::kIdle;
  OnDone on_done_;
  OnProgress on_progress_;  // after submit(), only for the writer thread
  std::chrono::nanoseconds submitted_at_{0};
  WriterStats stats_;
};

// Records `committed` in run/last_checkpoint.json and run/lineage.jsonl. An error is logged and has no other effect,
// because the checkpoint is durable.
void record_last_checkpoint(FileSystem& files, const run::RunLayout& layout,
                            const checkpoint::Manifest& committed);

}  // namespace stoker::writer
