// FeedRun: runs a worker pool that reads a dataset into a ring, as a worker process does.
//
// Threads:  the caller consumes; the threads of the pool read.
// Blocking: about `time`, after `unmeasured` batches, but at least twice the number of ring slots.
// Errors:   those of ring and pool.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/dataset.h"
#include "shared/feed/read_ahead.h"

namespace stoker::bench {

Result<std::unique_ptr<data::Dataset>> open_train_set(const config::DatasetConfig& config,
                                                      const std::string& index_dir,
                                                      uint64_t cache_bytes = 0);

constexpr uint64_t kSlots = 8;  // slots of the ring

struct FeedRun {
  uint64_t batch = 64;
  int threads = 1;
  feed::ReadAheadOptions ahead = {};
  uint64_t unmeasured = 0;  // batches
};
// Rates per second of wall time and per second of CPU time of the process. They are equal for a
// single thread with a dedicated core.
struct Rate {
  double per_second = 0;
  double per_cpu_second = 0;
};
Result<Rate> sample_rate(const data::Dataset& dataset, const FeedRun& run,
                         std::chrono::nanoseconds time);

// Measures a baseline: each of `threads` threads calls `read` with its own numbers, thread t with
// t, t + threads, t + 2 * threads, …. Returns the rate of calls; the first error ends all threads.
Result<Rate> call_rate(int threads, std::chrono::nanoseconds time,
                       const std::function<Status(uint64_t)>& read);
// Rates by wall time.
Result<double> samples_per_second(const data::Dataset& dataset, const FeedRun& run,
                                  std::chrono::nanoseconds time);
Result<double> calls_per_second(int threads, std::chrono::nanoseconds time,
                                const std::function<Status(uint64_t)>& read);

int worker_threads();  // number of cores, at most 4

}  // namespace stoker::bench
