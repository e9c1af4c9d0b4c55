// WorkerPool: threads that fill ring slots: claim a ticket, ask the plan which samples it holds,
// read each into the slot.
//
// The unit of work is a sample: the threads of one pool share the claimed batches, and whoever
// finishes the last sample of a batch publishes it, so one slow sample holds up one thread, not one
// batch per thread; small ones are taken several at a time (SampleReader). A pool works on two
// batches at a time, so that its threads have work while the last samples of a batch are being read,
// and on more while it reads ahead (read_ahead.h).
//
// Threads:  start() puts `threads` of them under the coordinator, and those that read ahead; they
//           end when the ring closes, at the end of data, or when a stop is requested. Those that
//           the ring does not want rest.
// Blocking: the threads wait for a slot, and look at the stop at least every 100 ms; a read that
//           hangs is not ended.
// Owner:    ring, dataset and coordinator must outlive the pool's threads, and so must the pool
//           (join the coordinator first). The destructor gives the tickets of unfinished batches
//           back.
// Errors:   a sample that cannot be read is reported through the ring and replaced by the plan's
//           stand-in (all processes agree on it, so the order stays a pure function); with
//           on_sample_error: fail the trainer's side ends the run. When kMaxReplacements in a row cannot
//           be read either, the thread fails with the last error.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "shared/base/coordinator.h"
#include "shared/config/feed_config.h"
#include "shared/data/dataset.h"
#include "shared/data/order/sample_plan.h"
#include "shared/feed/read_ahead.h"
#include "shared/ring/shm_ring.h"

namespace stoker::feed {

// How much a process that reads may keep of the samples that it has read.
inline constexpr uint64_t kMaxCachedBytes = 256ull << 20;

// For Dataset::enable_memory_cache(). An eighth of what a reading thread may take: whoever wants processes
// to be small sets feed.worker_memory_limit_mib, and then little is kept.
inline uint64_t sample_cache_budget(const config::FeedConfig& feed) {
  if (!feed.worker_memory_limit_mib) return kMaxCachedBytes;
  const auto allowed = static_cast<uint64_t>(*feed.worker_memory_limit_mib) << 20;
  return std::min(kMaxCachedBytes, allowed / 8);
}

// Which of all the pools of a run this is: its thread i is number i * of + number of all threads,
// and rests while the ring wants no more than that.
struct PoolIndex {
  uint32_t number = 0;
  uint32_t of = 1;
};

class WorkerPool {
 public:
  // The ring's layout must be the dataset's spec and the plan's batch.
  WorkerPool(ring::ShmRing& ring, ring::ProducerId producer, const data::Dataset& dataset,
             const data::order::SamplePlan& plan);
  ~WorkerPool();
  void start(int threads, Coordinator& coordinator, PoolIndex index = {},
             const ReadAheadOptions& ahead = {});

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace stoker::feed
