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

#include "shared/dataset/dataset.h"
#include "shared/dataset/memory_budget.h"
#include "shared/dataset/sample_plan.h"
#include "shared/feed/read_ahead_options.h"
#include "shared/feed/read_ahead_tuner.h"
#include "shared/feed/row_task.h"

namespace stoker::feed {

class ReadAhead {
 public:
  ReadAhead(const ReadAheadOptions& options, uint32_t workers, const dataset::Dataset& dataset,
            const dataset::SamplePlan& plan);

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
  const dataset::Dataset& dataset_;
  const dataset::SamplePlan& plan_;

  // Own synchronisation.
  dataset::MemoryBudget budget_;
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
