// BatchAssembly: one claimed batch that the threads of a pool fill together, sample by sample.
//
// Threads: open() by one thread at a time, while idle(); take_rows() and finish() by any.
//          Lock-free.
// Crash:   process-local: what a killed process had in work is in the ring's slot word, not here.
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

  // `order`: the how manieth of the pool's batches.
  void open(const ring::Claim& claim, uint64_t rows, uint64_t order) {
    claim_ = claim;
    order_.store(order, std::memory_order_relaxed);
    rows_.store(rows, std::memory_order_relaxed);
    remaining_.store(rows, std::memory_order_relaxed);
    idle_.store(false, std::memory_order_relaxed);
    // Release: whoever takes a row sees the claim. Until here the cursor stood past the last row.
    cursor_.store(0, std::memory_order_release);
  }

  // Hints, for whoever looks for a row.
  bool has_rows() const {
    return cursor_.load(std::memory_order_relaxed) < rows_.load(std::memory_order_relaxed);
  }
  uint64_t order() const { return order_.load(std::memory_order_relaxed); }
  struct RowRange {
    uint64_t first = 0;
    uint64_t count = 0;
  };
  // The next rows that nobody has, at most `max_rows`; nothing when all are handed out, or none is open.
  std::optional<RowRange> take_rows(uint64_t max_rows) {
    const uint64_t rows = rows_.load(std::memory_order_relaxed);
    if (cursor_.load(std::memory_order_relaxed) >= rows) return std::nullopt;
    const uint64_t first = cursor_.fetch_add(max_rows, std::memory_order_acquire);
    if (first >= rows) return std::nullopt;
    return RowRange{.first = first, .count = std::min(max_rows, rows - first)};
  }

  // True for the thread that finished the last rows: it publishes, then calls close().
  bool finish(uint64_t count) {
    return remaining_.fetch_sub(count, std::memory_order_acq_rel) == count;
  }
  void close() { idle_.store(true, std::memory_order_release); }

  // While the caller holds a row, or is the only one.
  const ring::Claim& claim() const { return claim_; }

 private:
  static constexpr uint64_t kPastTheEnd = uint64_t{1} << 63;

  alignas(64) std::atomic<uint64_t> cursor_{kPastTheEnd};
  alignas(64) std::atomic<uint64_t> remaining_{0};
  std::atomic<bool> idle_{true};
  std::atomic<uint64_t> rows_{0};  // the same at every open()
  std::atomic<uint64_t> order_{0};
  ring::Claim claim_;  // written while idle, read by holders of a row
};

// Neighbouring places of a batch that a pool works on, which one thread fills together; and the bytes of
// the sample where there is one and they were read ahead.
struct RowTask {
  BatchAssembly* batch = nullptr;
  uint64_t first = 0;
  uint64_t count = 1;
  std::unique_ptr<data::files::PrefetchedBytes> maybe_bytes = nullptr;
};

}  // namespace stoker::feed
