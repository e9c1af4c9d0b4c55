// ReadAhead: reads the bytes of samples from storage before a worker decodes them.
//
// The order of samples is known in advance, so dedicated threads can issue many reads at a time to
// high-latency storage and put the results into a queue for the workers. They read the rows of
// batches that the pool has claimed, in plan order. The content of a batch, its sample errors and
// their messages are the same with and without read-ahead. A memory budget bounds the queue and the
// reads in flight.
//
// Threads:   every method may be called from any thread.
// Blocking:  fetch() for storage and while the budget is exhausted; wait_for_row() and
//            wait_until_wanted() up to `timeout`, or until the stop.
// Ownership: dataset and plan must outlive this object.
// Errors:    none. A sample that could not be read ahead is read again, and reports its error, when
//            it is decoded.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <stop_token>

#include "shared/config/feed_config.h"
#include "shared/data/dataset.h"
#include "shared/data/files/prefetched_bytes.h"
#include "shared/data/order/sample_plan.h"
#include "shared/feed/batch_assembly.h"

namespace stoker::feed {

// How far a pool reads ahead of its workers.
struct ReadAheadOptions {
  int max_reads = 0;          // maximum in flight; 0: no read-ahead
  bool adapts = false;        // fewer or none if reads are fast; false: always max_reads
  uint64_t memory_bytes = 0;  // limit for requested bytes that are not decoded yet
};

// The share of pool `number` of `of`; the pools divide the configured limits.
ReadAheadOptions make_read_ahead_options(const config::FeedConfig& feed, uint32_t number,
                                         uint32_t of);

// ReadAheadTuner: how many reads should be in flight before their samples are decoded.
//
// By Little's law, workers that never wait for storage consume workers / work samples a second,
// where work is the processing time of a sample, and each sample is in flight for `waited`. The
// result is doubled because latency varies. It is 0 if the data is in memory, because passing bytes
// between threads would then cost more than it saves.
//
// Threads: every method may be called from any thread.
class ReadAheadTuner {
 public:
  // Read-ahead does not pay off for reads that wait less than this, or less than this fraction of
  // the work on their sample.
  static constexpr std::chrono::microseconds kMinWait{50};
  static constexpr double kMinShare = 0.1;
  // Window of the moving averages, in reads.
  static constexpr int kMeanWindow = 16;

  ReadAheadTuner(uint32_t workers, uint32_t max_rows) : workers_(workers), max_(max_rows) {}

  // The bytes of one sample have been read, and the thread was blocked for `waited`.
  void record_read(std::chrono::nanoseconds waited);
  // The worker time of one sample in addition to the read.
  void record_work(std::chrono::nanoseconds worked);
  uint32_t wanted() const { return wanted_.load(std::memory_order_relaxed); }

 private:
  void decide();  // requires mutex_

  const uint32_t workers_;
  const uint32_t max_;

  // Written with mutex_ held, read by any thread; no other data depends on it.
  std::atomic<uint32_t> wanted_{0};

  // Guarded by mutex_. Exponential moving averages.
  std::mutex mutex_;
  double waited_ns_ = 0;
  double worked_ns_ = 0;
  double waiting_ = 0;  // fraction of reads that waited longer than kShort
};

class ReadAhead {
 public:
  // `maybe_files`: null if the dataset has no files, so that there is nothing to read.
  ReadAhead(const ReadAheadOptions& options, uint32_t workers, const data::SampleFiles* maybe_files,
            const data::order::SamplePlan& plan);

  const ReadAheadOptions& options() const { return options_; }
  // Reads that should be in flight now. 0: workers read their samples themselves.
  uint32_t wanted() const {
    return options_.adapts ? tuner_.wanted() : static_cast<uint32_t>(options_.max_reads);
  }

  // Reads the bytes of `row`, a single row, and returns the time this took. The tuner receives only
  // the time for which the thread was blocked. A worker that only measures read latency passes no
  // stop token and does not wait for the budget.
  std::chrono::nanoseconds fetch(RowTask& row, std::optional<std::stop_token> maybe_stop);
  // The worker time of a row after its fetch().
  void record_work(std::chrono::nanoseconds worked);

  void put(RowTask row);
  std::optional<RowTask> try_take();
  // Returns when a row is available or the state might have changed.
  void wait_for_row(std::chrono::milliseconds timeout, const std::stop_token& stop);
  // Blocks while no more than `number` reads are wanted.
  void wait_until_wanted(uint32_t number, std::chrono::milliseconds timeout,
                         const std::stop_token& stop);
  // No more rows will be added; wakes all threads.
  void end();

 private:
  void wake_waiting_reads(uint32_t before);

  // Constant after construction.
  const ReadAheadOptions options_;
  const data::SampleFiles* const maybe_files_;
  const data::order::SamplePlan& plan_;

  // Own synchronization.
  data::files::MemoryBudget budget_;
  ReadAheadTuner tuner_;
  std::atomic<size_t> queued_{0};  // written with mutex_ held; a hint whether to lock it

  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable_any row_added_;  // a row was added, or the end
  std::condition_variable_any wanted_;     // more reads are wanted, or the end
  std::deque<RowTask> rows_;
  bool ended_ = false;
};

}  // namespace stoker::feed
