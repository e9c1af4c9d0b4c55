// DatasetMonitor: looks, while training goes on, whether there is more data than it is trained on, and
// indexes it beside the index in use. What it found is taken in by TrainingSession, which says when.
//
// Threads:  run() on a thread of its own; found() from any.
// Blocking: run() until `stop`: it looks each feed.refresh_interval_seconds, which is a stat of each file, and
//           where something came, as long as indexing takes. A stop is heard between two files.
// Errors:   none: what cannot be taken in (a file is gone, or changed, or half written) is logged
//           and looked at again later; training goes on with what it has.
#pragma once

#include <atomic>
#include <stop_token>
#include <string>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"

namespace stoker::app {

class DatasetMonitor {
 public:
  // All must outlive this object. `data` is data.train as opened from `index_dir`; what is found is
  // indexed in `next_dir`.
  DatasetMonitor(const config::Config& config, const data::Dataset& data, std::string index_dir,
                 std::string next_dir);

  Status run(std::stop_token stop);
  // Whether `next_dir` has the index of more data. It stays as it is from then on.
  bool found() const { return found_.load(std::memory_order_acquire); }
  // Of what was found; only then.
  uint64_t samples() const { return samples_; }
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  Status scan(const std::stop_token& stop);
  Status prepare_next_index() const;

  const config::Config& config_;
  const data::Dataset& data_;
  const std::string index_dir_;
  const std::string next_dir_;

  // Of the watch's thread.
  bool seeded_ = false;
  std::string last_error_;  // the last trouble, which is logged once

  // Written by run() before found_.
  uint64_t samples_ = 0;
  std::string fingerprint_;

  std::atomic<bool> found_{
      false};  // written by run(); what it did before is seen by who reads true
};

}  // namespace stoker::app
