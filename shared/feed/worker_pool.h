// WorkerPool: threads that fill ring slots. Each claims a ticket, looks up its samples in the plan
// and reads them into the slot.
//
// The unit of work is a sample. The threads of a pool share the claimed batches, and the thread
// that finishes the last sample of a batch publishes it. One slow sample therefore delays one
// thread, not one batch per thread. Small samples are taken several at a time (SampleReader). A
// pool works on two batches at a time, so that its threads have work while the last samples of a
// batch are read, and on more while it reads ahead (read_ahead.h).
//
// Threads:   start() starts `threads` worker threads and the read-ahead threads under the
//            coordinator. They end when the ring closes, at the end of data, or when a stop is
//            requested. Threads that ring.active_workers() excludes are idle.
// Blocking:  the threads wait for a slot and check for a stop at least every 100 ms. A hanging read
//            is not interrupted.
// Ownership: ring, dataset, coordinator and the pool itself must outlive the pool's threads (join
//            the coordinator first). The destructor requeues the tickets of unfinished batches.
// Errors:    a sample that cannot be read is reported through the ring and replaced by the plan's
//            replacement sample. All processes choose the same replacement, so the order stays a
//            pure function. With on_sample_error: fail the trainer ends the run. If too many
//            consecutive replacement samples cannot be read either (SampleReader), the thread fails
//            with the last error.
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

// Maximum memory that a worker process uses to cache samples it has read.
inline constexpr uint64_t kMaxCachedBytes = 256ull << 20;

// The memory for cached samples of a process that reads them: at most an eighth of
// feed.worker_memory_limit_mib, so that a small limit leaves room for reading.
inline uint64_t sample_cache_budget(const config::FeedConfig& feed) {
  if (!feed.worker_memory_limit_mib) return kMaxCachedBytes;
  const auto allowed = static_cast<uint64_t>(*feed.worker_memory_limit_mib) << 20;
  return std::min(kMaxCachedBytes, allowed / 8);
}
// The same for stokerd, which reads samples only if its workers are threads.
inline uint64_t in_process_cache_budget(const config::FeedConfig& feed) {
  const bool has_threads =
      feed.num_processes == 0 && feed.producers != config::ProducerMode::kExternal;
  return has_threads ? sample_cache_budget(feed) : 0;
}

// Position of this pool among all pools of a run. Its thread i has the run-wide index
// number + i * of and is idle unless that index is below ring.active_workers() (0: no limit).
struct PoolIndex {
  uint32_t number = 0;
  uint32_t of = 1;
};

class WorkerPool {
 public:
  // The ring's layout must match the dataset's spec and the plan's batch size.
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
