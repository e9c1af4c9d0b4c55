// DatasetMonitor: detects new data during training and indexes it in a separate directory. The
// trainer decides at which step it switches to it.
//
// Threads:  run() on its own thread; found() from any.
// Blocking: run() until `stop`. Every feed.refresh_interval_seconds it calls stat() on each file
//           and indexes the data if it changed. A stop takes effect between two files.
// Errors:   none. Data that cannot be added (a file was removed, changed or is incomplete) is
//           logged and checked again later; training continues with its current data.
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
  // All must outlive this object. `data` is data.train as opened from `index_dir`; new data
  // is indexed in `next_dir`.
  DatasetMonitor(const config::Config& config, const data::Dataset& data, std::string index_dir,
                 std::string next_dir);

  Status run(std::stop_token stop);
  // Whether `next_dir` contains the index of new data, which then never changes.
  bool found() const { return found_.load(std::memory_order_acquire); }
  // Of the new data; only if found().
  uint64_t samples() const { return samples_; }
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  Status scan(const std::stop_token& stop);
  Status prepare_next_index() const;

  const config::Config& config_;
  const data::Dataset& data_;
  const std::string index_dir_;
  const std::string next_dir_;

  // Only for the thread of run().
  bool seeded_ = false;
  std::string last_error_;  // the same error is logged only once

  // Written by run() before found_.
  uint64_t samples_ = 0;
  std::string fingerprint_;

  // Written by run() with release order, so that a reader of `true` sees the values above.
  std::atomic<bool> found_{false};
};

}  // namespace stoker::app
