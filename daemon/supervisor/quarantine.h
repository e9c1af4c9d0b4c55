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

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/dataset/dataset.h"
#include "shared/feed/quarantine_table.h"

namespace stoker::supervisor {

inline constexpr uint64_t kKillsToQuarantine = 3;

class Quarantine {
 public:
  Quarantine(const feed::QuarantineTable& table, const dataset::Dataset& dataset)
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
  const dataset::Dataset& dataset_;

  std::map<uint64_t, uint64_t> kills_;  // of the suspects, read alone
  std::vector<uint64_t> samples_;
};

}  // namespace stoker::supervisor
