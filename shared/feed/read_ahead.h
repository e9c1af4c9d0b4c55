// ReadAhead: the bytes of samples on their way from the disk, before a reader decodes them.
//
// Which samples come next is known, so threads that do nothing else can ask a slow disk for many at
// a time and lay what came in a queue, from which the readers take. They ask for the rows of
// batches that the pool has claimed, in the order of the plan; what a batch holds, which samples
// are bad and what their errors say is the same with and without. Memory is limited by a budget,
// and queue and reads in flight with it.
//
// Threads:  every method may be called from any thread.
// Blocking: fetch() as the disk does, and while the budget has no room; wait_for_row() and rest()
//           at most `timeout`, or until the stop.
// Owner:    dataset and plan must outlive this object.
// Errors:   none: a sample that could not be read ahead is read, and fails, when it is decoded.
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

// How far a pool reads ahead of its readers.
struct ReadAheadOptions {
  int max_reads = 0;          // in flight; 0: none
  bool adapts = false;        // to how long reads wait: fewer, or none; otherwise always so many
  uint64_t memory_bytes = 0;  // of bytes that were asked for and are not decoded yet
};

// What falls to pool `number` of `of`, which share what the settings say.
ReadAheadOptions make_read_ahead_options(const config::FeedConfig& feed, uint32_t number,
                                         uint32_t of);

// ReadAheadTuner: how many reads should be in flight before their samples are decoded.
//
// By Little's law: readers that never wait for the disk take readers / work samples a second, work
// being what a sample costs them, and each of these was `waited` in flight. Twice as many, for no
// disk is steady. None, where what is read is in memory: then handing bytes from thread to thread
// costs more than it saves.
//
// Threads: every method may be called from any thread.
class ReadAheadTuner {
 public:
  // Reads that wait less are not worth it, and neither are those that wait for less than a tenth of
  // the work on their sample.
  static constexpr std::chrono::microseconds kShort{50};
  static constexpr double kMinShare = 0.1;
  // Reads that the averages look back to.
  static constexpr int kMemory = 16;

  ReadAheadTuner(uint32_t workers, uint32_t max_rows) : workers_(workers), max_(max_rows) {}

  // The bytes of one sample were got, and the thread stood still for so long meanwhile.
  void record_read(std::chrono::nanoseconds waited);
  // All else that one sample took of a reader's time.
  void record_work(std::chrono::nanoseconds worked);
  uint32_t wanted() const { return wanted_.load(std::memory_order_relaxed); }

 private:
  void decide();  // with mutex_ held

  const uint32_t workers_;
  const uint32_t max_;

  // Written with mutex_ held, read by anybody: a number that stands for itself.
  std::atomic<uint32_t> wanted_{0};

  // Guarded by mutex_. Means that forget.
  std::mutex mutex_;
  double waited_ns_ = 0;
  double worked_ns_ = 0;
  double waiting_ = 0;  // part of the reads that waited for longer than kShort
};

class ReadAhead {
 public:
  ReadAhead(const ReadAheadOptions& options, uint32_t workers, const data::Dataset& dataset,
            const data::order::SamplePlan& plan);

  const ReadAheadOptions& options() const { return options_; }
  // Reads that should be in flight now. 0: readers read for themselves.
  uint32_t wanted() const {
    return options_.adapts ? tuner_.wanted() : static_cast<uint32_t>(options_.max_reads);
  }

  // Gets the bytes of a row, which is one, and says how long that took; of that the tuner is told for how long it
  // stood still. A reader that only wants to know how slow reads are has no stop, and does not wait
  // for room.
  std::chrono::nanoseconds fetch(RowTask& row, std::optional<std::stop_token> maybe_stop);
  // What a row took of a reader after its fetch().
  void record_work(std::chrono::nanoseconds worked);

  void put(RowTask row);
  std::optional<RowTask> try_take();
  // Until there is a row, or something else may have changed.
  void wait_for_row(std::chrono::milliseconds timeout, const std::stop_token& stop);
  // While no more than `number` reads are wanted.
  void rest(uint32_t number, std::chrono::milliseconds timeout, const std::stop_token& stop);
  // No more rows will come: wakes all.
  void end();

 private:
  void wake_wanted(uint32_t before);

  // Constant after construction.
  const ReadAheadOptions options_;
  const data::Dataset& dataset_;
  const data::order::SamplePlan& plan_;

  // Own synchronisation.
  data::files::MemoryBudget budget_;
  ReadAheadTuner tuner_;
  std::atomic<size_t> queued_{0};  // written with mutex_ held: whether it is worth taking that

  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable_any came_;    // a row, or the end
  std::condition_variable_any wanted_;  // more reads in flight, or the end
  std::deque<RowTask> rows_;
  bool ended_ = false;
};

}  // namespace stoker::feed
