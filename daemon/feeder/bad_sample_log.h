// BadSampleLog: what becomes of samples that could not be read: a line in the log, a line in
// bad_samples.jsonl, and the end of the run where the configuration asks for it.
//
// Threads:  one at a time.
// Blocking: as writing a short line does.
// Errors:   take(): kCorrupt: the run must end (feed.on_bad_sample: stop, or more than
//           feed.bad_sample_limit). Trouble with the file is logged once and does not end the run.
// Format:   one JSON object a line: {"ticket", "sample", "file", "offset", "error", "reason"}. A
//           ticket that was done again after a reader's death is not listed again; one that a
//           restarted run does again is.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/status.h"
#include "shared/base/unique_fd.h"
#include "shared/config/feed_config.h"
#include "shared/dataset/dataset.h"
#include "shared/ring/shm_ring.h"

namespace stoker::feeder {

class BadSampleLog {
 public:
  BadSampleLog(const config::FeedConfig& feed, const dataset::Dataset& dataset, uint64_t batch,
               std::string path, const Clock& clock);

  Status take(const std::vector<ring::BadSample>& reports, const ring::RingCounters& counters);
  uint64_t bad_samples() const { return count_; }  // each once per ticket

 private:
  void log(const ring::BadSample& bad, const dataset::Origin& origin);
  void append(const ring::BadSample& bad, const dataset::Origin& origin);
  void log_held_back();
  Status judge(const ring::RingCounters& counters) const;

  // Constant after construction.
  const config::FeedConfig feed_;
  const dataset::Dataset& dataset_;
  const uint64_t batch_;
  const std::string path_;
  const Clock& clock_;

  std::set<std::pair<uint64_t, uint64_t>> seen_;  // (ticket, sample) of the newest tickets
  uint64_t count_ = 0;
  std::string last_;  // for messages: "sample 17 (file, offset): reason"
  uint64_t held_back_ = 0;
  std::chrono::nanoseconds last_line_{0};
  UniqueFd file_;
  bool file_failed_ = false;
  uint64_t lines_ = 0;
};

}  // namespace stoker::feeder
