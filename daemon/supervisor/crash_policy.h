// Quarantine: stokerd's judgement of samples that kill reader processes.
//
// A sample that was the only one in hand at kKillsToQuarantine deaths for which it may be to blame, without one read that came
// back in between, is not read any more. Which samples these are depends on the data alone when the
// same samples always kill, so a run that is started again comes to the same list; a list from a
// checkpoint makes it certain (restore()).
//
// Threads:  one at a time.
// Blocking: never.
// Owner:    table and dataset must outlive this object.
// Errors:   kCorrupt: the quarantine is full.
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

inline constexpr uint64_t kKillsToQuarantine = 3;

class Quarantine {
 public:
  Quarantine(const feed::QuarantineTable& table, const data::Dataset& dataset)
      : table_(table), dataset_(dataset) {}

  Status restore(const std::vector<uint64_t>& samples);
  // Whether what was in hand may be to blame for a death. A process that was killed because it waited
  // without end says nothing of its sample: it was stopped, or the file system does not answer.
  enum class CrashAttribution { kPossible, kNone };
  // After process `worker` was reaped, before its tickets are handed on. True: a sample was put into
  // quarantine, so the next process gets further.
  Result<bool> assess_crash(uint32_t worker, std::string_view cause,
                            CrashAttribution attribution = CrashAttribution::kPossible);
  const std::vector<uint64_t>& samples() const { return samples_; }  // in quarantine

 private:
  Status put(uint64_t sample);

  // Constant after construction.
  const feed::QuarantineTable& table_;
  const data::Dataset& dataset_;

  std::map<uint64_t, uint64_t> kills_;  // of the suspects, read alone
  std::vector<uint64_t> samples_;
};

// RestartLimiter: when readers die too often for the run to go on: in vain, or more than so many a
// minute.
//
// Threads: one at a time.
// Errors:  record_crash(): kInternal: the run must end; says how many died, of what, and what helps.
class RestartLimiter {
 public:
  static constexpr uint64_t kMaxCrashesWithoutProgress = 20;  // without one new batch
  // A reader that ends with an error of its own will do so again.
  static constexpr uint64_t kMaxFailuresWithoutProgress = 3;

  struct Crash {
    std::chrono::nanoseconds now{0};
    uint64_t published = 0;      // batches so far, by all
    bool is_unprovoked = false;  // with an error, not by a signal
    bool made_progress = false;  // what killed it is in quarantine now
    std::string cause;
  };

  explicit RestartLimiter(uint64_t deaths_per_minute)
      : max_crashes_per_minute_(deaths_per_minute) {}

  Status record_crash(const Crash& crash);
  uint64_t crashes() const { return crashes_; }

 private:
  const uint64_t max_crashes_per_minute_;
  uint64_t crashes_ = 0;
  uint64_t crashes_without_progress_ = 0;
  uint64_t failures_without_progress_ = 0;  // of those
  uint64_t published_ = 0;                  // at the last death
  std::deque<std::chrono::nanoseconds> last_minute_;
};

}  // namespace stoker::supervisor
