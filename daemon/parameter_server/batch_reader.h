// BatchReader: reads the batches of a worker's tickets, the one that probably follows while the worker
// computes.
//
// prefetch() reads on a thread of this object, which begins with the first call; so the process that a
// sandboxed dataset starts there lives as long as this object. Without it, read() reads in the calling thread.
//
// Threads:   one.
// Blocking:  read() for the data; a stop wakes it while the other thread reads. The destructor until that
//            thread has ended its batch.
// Ownership: what the constructor takes by reference must outlive this object. The tensors of a batch are
//            valid until the next read().
// Errors:    read(): those of data::Dataset::read_batch(), with the ticket. An error of a batch that is
//            prefetched is that of its read(); if it is never read, there is none. kCancelled: stopped.
//            prefetch(): kBusy: the system has no more threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "shared/base/coordinator.h"
#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/order/sample_plan.h"
#include "shared/feed/batch_receiver.h"
#include "shared/feed/batch_shapes.h"

namespace stoker::parameter_server {

class BatchReader {
 public:
  BatchReader(const data::Dataset& data, const data::order::SamplePlan& plan);

  Result<feed::ReceivedBatch> read(uint64_t ticket, const std::stop_token& stop);
  // Replaces the ticket of the call before, whose batch is then read again if it is needed.
  Status prefetch(uint64_t ticket);
  bool has_next();  // a batch that is prefetched

 private:
  Status fill(std::vector<std::byte>& memory, uint64_t ticket) const;
  bool has_prefetched(uint64_t ticket) const;  // mutex_ is locked
  Status run(const std::stop_token& stop);

  // Constant after construction.
  const data::Dataset& data_;
  const data::order::SamplePlan& plan_;
  const feed::BatchShapes shapes_;

  std::vector<std::byte> memory_;  // of the last read()
  bool has_thread_ = false;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_.
  std::optional<uint64_t> wanted_;      // to be prefetched
  std::optional<uint64_t> prefetched_;  // begun, or done
  bool is_reading_ = false;             // then only the thread uses the next one
  std::vector<std::byte> next_memory_;
  Status next_status_;

  Coordinator threads_;  // of the members above
};

}  // namespace stoker::parameter_server
