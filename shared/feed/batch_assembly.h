// BatchAssembly: one claimed batch that the threads of a pool fill together, sample by sample.
//
// Threads: open() from one thread at a time, while idle(); take_rows() and finish() from any
//          thread. Lock-free.
// Crash:   process-local. The state of a killed process is in the slot word of the ring, not here.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "shared/data/files/prefetched_bytes.h"
#include "shared/ring/shm_ring.h"

namespace stoker::feed {

class BatchAssembly {
 public:
  bool idle() const { return idle_.load(std::memory_order_acquire); }

  // `order`: the index of this batch among the batches of the pool.
  void open(const ring::Claim& claim, uint64_t rows, uint64_t order) {
    claim_ = claim;
    order_.store(order, std::memory_order_relaxed);
    rows_.store(rows, std::memory_order_relaxed);
    remaining_.store(rows, std::memory_order_relaxed);
    idle_.store(false, std::memory_order_relaxed);
    // Release: a thread that takes a row sees the claim. Until this store the cursor is past the
    // last row.
    cursor_.store(0, std::memory_order_release);
  }

  // Hints for threads that search for rows.
  bool has_rows() const {
    return cursor_.load(std::memory_order_relaxed) < rows_.load(std::memory_order_relaxed);
  }
  uint64_t order() const { return order_.load(std::memory_order_relaxed); }
  struct RowRange {
    uint64_t first = 0;
    uint64_t count = 0;
  };
  // The next rows that no thread has taken, up to `max_rows`. Empty if all rows are taken or no
  // batch is open.
  std::optional<RowRange> take_rows(uint64_t max_rows) {
    const uint64_t rows = rows_.load(std::memory_order_relaxed);
    if (cursor_.load(std::memory_order_relaxed) >= rows) return std::nullopt;
    const uint64_t first = cursor_.fetch_add(max_rows, std::memory_order_acquire);
    if (first >= rows) return std::nullopt;
    return RowRange{.first = first, .count = std::min(max_rows, rows - first)};
  }

  // True for the thread that finishes the last rows. That thread publishes the batch, then calls
  // close().
  bool finish(uint64_t count) {
    return remaining_.fetch_sub(count, std::memory_order_acq_rel) == count;
  }
  void close() { idle_.store(true, std::memory_order_release); }

  // Valid while the caller holds a row or is the only user.
  const ring::Claim& claim() const { return claim_; }

 private:
  static constexpr uint64_t kPastTheEnd = uint64_t{1} << 63;

  alignas(64) std::atomic<uint64_t> cursor_{kPastTheEnd};
  alignas(64) std::atomic<uint64_t> remaining_{0};
  std::atomic<bool> idle_{true};
  std::atomic<uint64_t> rows_{0};  // does not change after the first open()
  std::atomic<uint64_t> order_{0};
  ring::Claim claim_;  // written while idle; read by threads that hold a row
};

// Adjacent rows of a batch that one thread fills together. If a single row was read ahead, the task
// also holds the bytes of its sample.
struct RowTask {
  BatchAssembly* batch = nullptr;
  uint64_t first = 0;
  uint64_t count = 1;
  std::unique_ptr<data::files::PrefetchedBytes> maybe_bytes = nullptr;
};

}  // namespace stoker::feed
