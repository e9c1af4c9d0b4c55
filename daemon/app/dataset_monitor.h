// DatasetMonitor: detects new data during training and indexes it next to the index in use.
// Run switches to it at a step that it chooses.
//
// Threads:  run() on its own thread; found() from any.
// Blocking: run() until `stop`. Every feed.refresh_interval_seconds it calls stat() on each file, and
//           indexes the data if some is new. A stop takes effect between two files.
// Errors:   none. Data that cannot be added (a file was removed, changed or is incomplete) is logged and
//           checked again later; training continues with its current data.
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
