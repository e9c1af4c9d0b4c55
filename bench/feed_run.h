// FeedRun: a reader pool that reads a data set into a ring for a while, as a reader process does.
//
// Threads:  the caller consumes; the pool's threads read.
// Blocking: about `time`, after `unmeasured` batches, at least twice as many as the ring has slots.
// Errors:   those of ring and pool.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/dataset/dataset.h"
#include "shared/feed/read_ahead_options.h"

namespace stoker::bench {

Result<std::unique_ptr<dataset::Dataset>> open_train_set(const config::DatasetConfig& config,
                                                         const std::string& index_dir);

constexpr uint64_t kSlots = 8;  // of the ring that is filled

struct FeedRun {
  uint64_t batch = 64;
  int threads = 1;
  feed::ReadAheadOptions ahead = {};
  uint64_t unmeasured = 0;  // batches
};
// A second on the clock, and a second of the process's time on a processor: the same for one thread
// that has one to itself.
struct Rate {
  double per_second = 0;
  double per_cpu_second = 0;
};
Result<Rate> sample_rate(const dataset::Dataset& dataset, const FeedRun& run,
                         std::chrono::nanoseconds time);

// The peers' loop: `threads` threads call `read` with numbers that grow by `threads`, from 0, 1, …;
// the number of calls. The first error ends all.
Result<Rate> call_rate(int threads, std::chrono::nanoseconds time,
                       const std::function<Status(uint64_t)>& read);
// What a trial by the clock measures.
Result<double> samples_per_second(const dataset::Dataset& dataset, const FeedRun& run,
                                  std::chrono::nanoseconds time);
Result<double> calls_per_second(int threads, std::chrono::nanoseconds time,
                                const std::function<Status(uint64_t)>& read);

int worker_threads();  // what this machine has cores for, at most 4

}  // namespace stoker::bench
