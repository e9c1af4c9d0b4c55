// Quarantine: stokerd's decisions about samples that crash worker processes.
//
// A sample is quarantined after feed::kCrashesToQuarantine crashes that it can have caused and
// during which it was the only sample being read, without a successful read in between. If the same
// samples always crash, the result depends on the data alone, so a restarted run arrives at the
// same list. restore() with the list from a checkpoint guarantees this.
//
// Threads:   one at a time.
// Blocking:  never.
// Ownership: table and dataset must outlive this object.
// Errors:    kCorrupt: the quarantine is full.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/feed/quarantine_table.h"

namespace stoker::supervisor {

class Quarantine {
 public:
  // `maybe_dataset`: null without samples that have an index.
  Quarantine(const feed::QuarantineTable& table, const data::Dataset* maybe_dataset)
      : table_(table), maybe_dataset_(maybe_dataset) {}

  Status restore(const std::vector<uint64_t>& samples);
  // Whether the samples being read can have caused the crash. A process that was killed while
  // waiting says nothing about its samples: it was stopped, or the file system does not respond.
  enum class CrashAttribution { kPossible, kNone };
  // Must be called after process `worker` was reaped and before its tickets are requeued. True: a
  // sample was quarantined, so the next process makes progress.
  Result<bool> assess_crash(uint32_t worker, std::string_view cause,
                            CrashAttribution attribution = CrashAttribution::kPossible);
  const std::vector<uint64_t>& samples() const { return samples_; }  // in quarantine

 private:
  Status put(uint64_t sample);

  // Constant after construction.
  const feed::QuarantineTable& table_;
  const data::Dataset* const maybe_dataset_;

  std::map<uint64_t, uint64_t> num_crashes_;  // number of crashes per suspect, read alone
  std::vector<uint64_t> samples_;
};

// RestartLimiter: ends a run whose workers crash too often: repeatedly without progress, or more
// than the configured number of times per minute.
//
// Threads: one at a time.
// Errors:  record_crash(): the run must end, with the error that the last process has reported, or with
//          the code of its crash; the message has the number of crashes and the cause.
class RestartLimiter {
 public:
  static constexpr uint64_t kMaxCrashesWithoutProgress = 20;  // without a new batch
  // Lower, because a worker that exits with an error will do so again.
  static constexpr uint64_t kMaxFailuresWithoutProgress = 3;

  struct Crash {
    std::chrono::nanoseconds now{0};
    uint64_t published = 0;                   // batches so far, by all workers
    bool is_unprovoked = false;               // exited with an error, not by a signal
    bool made_progress = false;               // the sample that caused it is now in quarantine
    StatusCode code = StatusCode::kInternal;  // of the run, if this crash ends it
    std::string cause;
    std::string hint = {};  // what to do
    Status failure = {};    // that the process has reported; ok: none, the other three apply
  };

  explicit RestartLimiter(uint64_t max_crashes_per_minute)
      : max_crashes_per_minute_(max_crashes_per_minute) {}

  Status record_crash(const Crash& crash);
  uint64_t crashes() const { return crashes_; }

 private:
  const uint64_t max_crashes_per_minute_;
  uint64_t crashes_ = 0;
  uint64_t crashes_without_progress_ = 0;
  uint64_t failures_without_progress_ = 0;  // subset of crashes_without_progress_
  uint64_t published_ = 0;                  // at the last crash
  std::deque<std::chrono::nanoseconds> last_minute_;
};

}  // namespace stoker::supervisor
