// IndexedRows: the rows of a stream's batches that have an index, because a mixture takes them from its
// other datasets. Threads read them while the batch waits for the records of the stream.
//
// Which rows these are, and their samples, is a function of the sample plan. A sample that cannot be
// read is handled as by a WorkerPool.
//
// Threads:   open(), cancel() and finish() from the thread that takes batches.
// Blocking:  finish() until the rows are read; a hanging read is not interrupted.
// Ownership: the constructor's arguments must outlive this object, and this object the threads (join
//            the coordinator first).
// Errors:    finish(): those of SampleReader, which also stop the coordinator; kCancelled.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <stop_token>
#include <vector>

#include "shared/base/coordinator.h"
#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/order/sample_plan.h"
#include "shared/feed/batch_assembly.h"
#include "shared/feed/batch_shapes.h"
#include "shared/ring/shm_ring.h"

namespace stoker::feed {

class IndexedRows {
 public:
  // `data`: the datasets of a mixture with an index; `plan`: of the mixture, with the batch of the ring.
  IndexedRows(const data::Dataset& data, const data::order::SamplePlan& plan, ring::ShmRing& ring,
              ring::ProducerId producer);
  void start(int threads, Coordinator& coordinator);

  // Starts to read rows into the slot. Returns the rows of the stream, valid until the next call.
  std::span<const uint64_t> open(const ring::Claim& claim);
  // Rows that are not being read yet are not needed any more. Every later batch fails, too.
  void cancel();
  // Waits until no thread writes to the slot. OK if all rows were read.
  Status finish(const std::stop_token& stop);

  // The number of a record of the stream among the samples of the mixture.
  uint64_t stream_sample(uint64_t record) const;

 private:
  Status read_rows(const std::stop_token& stop);
  bool is_finished() const { return next_ == rows_.size() && reading_ == 0; }

  // Constant after construction.
  const data::Dataset& data_;
  const data::order::SamplePlan& plan_;
  ring::ShmRing& ring_;
  const ring::ProducerId producer_;
  const BatchShapes shapes_;

  // Used by the thread that takes batches.
  std::vector<data::order::PlannedSample> planned_;
  std::vector<uint64_t> stream_rows_;

  std::mutex mutex_;
  std::condition_variable_any opened_;
  std::condition_variable_any finished_;
  // Guarded by mutex_.
  BatchAssembly batch_;         // changes only while no row is being read; only its claim is used
  std::vector<uint64_t> rows_;  // to be read, ascending
  size_t next_ = 0;             // the first of them that no thread has taken
  uint64_t reading_ = 0;        // number of rows being read
  Status failure_;
};

}  // namespace stoker::feed
