#include "shared/feed/worker_pool.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shared/feed/batch_assembly.h"
#include "shared/feed/batch_shapes.h"
#include "shared/feed/read_ahead.h"
#include "shared/feed/row_task.h"

namespace stoker::feed {
namespace {

constexpr auto kMaxWait = std::chrono::milliseconds(100);
// Threads that are only there for reads ahead, and not wanted, look so seldom at the end.
constexpr auto kMaxRest = std::chrono::seconds(10);
constexpr auto kMaxIdle = std::chrono::seconds(1);  // of those that are
// Batches that a pool works on: so that its threads have work while the last samples of one are
// read.
constexpr size_t kBatches = 2;
constexpr size_t kMaxBatches = 16;

// Enough rows for all reads in flight, and as many that came and wait to be decoded.
size_t batches_for(const ReadAheadOptions& ahead, uint64_t batch) {
  const uint64_t rows = 2 * static_cast<uint64_t>(ahead.max_reads);
  return std::min(kBatches + (rows + batch - 1) / batch, kMaxBatches);
}

}  // namespace

struct WorkerPool::Shared {
  // Constant after construction.
  ring::ShmRing& ring;
  const ring::ProducerId producer;
  const dataset::Dataset& dataset;
  const dataset::SamplePlan& plan;
  const BatchShapes shapes;
  // Once the pool is started.
  std::optional<ReadAhead> maybe_ahead = {};
  size_t max_batches = kBatches;

  // Own synchronisation.
  std::array<BatchAssembly, kMaxBatches> work = {};
  std::atomic<uint64_t> opened{0};   // batches, ever; written by the one that is claiming
  std::atomic_flag claiming;         // held by the one thread that waits for a ticket
  std::atomic<uint64_t> changes{0};  // a batch was opened or finished, or the end came
  std::atomic<bool> ended{false};    // no more tickets

  // For the waits on `changes` and on the end only.
  std::mutex mutex;
  std::condition_variable_any changed;
  std::condition_variable_any rested;  // apart, so that a batch does not wake who has no part in it
  // Threads that read ahead: there is a row, or perhaps a batch to claim. One is woken, who wakes the
  // next where there is more: to wake them all for each batch would cost more than to decode it.
  std::condition_variable_any unread;

  void announce() {
    {
      const std::lock_guard lock(mutex);
      ++changes;
    }
    changed.notify_all();
    unread.notify_one();
  }

  bool has_rows() const {
    return std::any_of(work.begin(), work.end(),
                       [](const BatchAssembly& batch) { return batch.has_rows(); });
  }

  void wait_for_unread(uint64_t seen, const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    unread.wait_for(lock, stop, kMaxIdle, [&] { return changes.load() != seen || has_rows(); });
  }

  void wait_for_change(uint64_t seen, std::stop_token stop) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, stop, kMaxWait, [&] { return changes.load() != seen; });
  }

  void rest(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    rested.wait_for(lock, stop, kMaxWait, [this] { return ended.load(); });
  }

  bool reads_ahead() const { return maybe_ahead && maybe_ahead->wanted() > 0; }

  // Rows of the oldest batch first: the trainer waits for that one.
  std::optional<RowTask> find_rows(uint64_t max_rows) {
    while (true) {
      BatchAssembly* oldest = nullptr;
      for (size_t which = 0; which < max_batches; ++which)
        if (work[which].has_rows() && (!oldest || work[which].order() < oldest->order()))
          oldest = &work[which];
      if (!oldest) return std::nullopt;
      if (const auto range = oldest->take_rows(max_rows))
        return RowTask{.batch = oldest, .first = range->first, .count = range->count};
    }
  }

  // Waits for a ticket when there is room for a batch and no other thread does. True: look for a
  // row again.
  Result<bool> claim_if_mine() {
    if (claiming.test_and_set(std::memory_order_acquire)) return false;
    bool has_opened = false;
    Status error;
    const size_t batches = reads_ahead() ? max_batches : kBatches;
    for (size_t which = 0; which < batches; ++which) {
      if (!work[which].idle()) continue;
      const auto claim = ring.claim(producer, kMaxWait);
      has_opened = claim.ok();
      if (has_opened) {
        work[which].open(*claim, plan.options().batch, opened++);
      } else {
        error = claim.status();
      }
      break;
    }
    claiming.clear(std::memory_order_release);
    if (has_opened) announce();
    if (has_opened || error.code() == StatusCode::kTimedOut) return true;
    if (!error.ok()) return error;
    return false;
  }

  bool is_wanted(uint32_t thread) const {
    const uint32_t wanted = ring.active_workers();
    return wanted == 0 || thread < wanted;
  }

  Status end_of_data() {
    ended = true;
    announce();
    rested.notify_all();
    unread.notify_all();
    if (maybe_ahead) maybe_ahead->end();
    return Status(StatusCode::kClosed, "end of data");
  }

  // At most so many rows whose bytes are still to be read; nothing after a wait for one, as `wait` does
  // it. kClosed: the end.
  template <typename Wait>
  Result<std::optional<RowTask>> find_unread_rows(uint64_t max_rows, const Wait& wait) {
    const uint64_t seen = changes.load();
    if (auto rows = find_rows(max_rows)) return rows;
    if (ended.load()) return end_of_data();
    const auto poll_again = claim_if_mine();
    if (!poll_again.ok())
      return poll_again.status().code() == StatusCode::kClosed ? end_of_data()
                                                               : poll_again.status();
    if (!*poll_again) wait(seen);
    return std::optional<RowTask>();
  }

  // kClosed: the end. Otherwise rows to decode, at most `max_rows`, for the thread with that number.
  Result<RowTask> next_rows(uint32_t thread, uint64_t max_rows, const std::stop_token& stop) {
    while (!stop.stop_requested() && !ring.closed()) {
      if (!is_wanted(thread)) {
        if (ended.load()) break;
        rest(stop);
        continue;
      }
      if (maybe_ahead)
        if (auto row = maybe_ahead->try_take()) return *std::move(row);
      if (reads_ahead()) {
        if (ended.load()) break;
        maybe_ahead->wait_for_row(kMaxWait, stop);
        continue;
      }
      STOKER_ASSIGN_OR_RETURN(auto rows, find_unread_rows(max_rows, [&](uint64_t seen) {
                                wait_for_change(seen, stop);
                              }));
      if (rows) return *std::move(rows);
    }
    return end_of_data();
  }

  // A row for a thread that reads ahead.
  Result<RowTask> next_row_to_fetch(uint32_t thread, const std::stop_token& stop) {
    while (!stop.stop_requested() && !ring.closed() && !ended.load()) {
      if (thread >= maybe_ahead->wanted()) {
        unread.notify_one();  // it may have been woken in another's stead
        maybe_ahead->rest(thread, kMaxRest, stop);
        continue;
      }
      STOKER_ASSIGN_OR_RETURN(
          auto row, find_unread_rows(1, [&](uint64_t seen) { wait_for_unread(seen, stop); }));
      if (!row) continue;
      if (has_rows()) unread.notify_one();
      return *std::move(row);
    }
    return end_of_data();
  }

  void finish(const RowTask& rows) {
    ring.add_completed_samples(producer, rows.count);
    if (!rows.batch->finish(rows.count)) return;
    ring.publish(producer, rows.batch->claim());  // false: reissued meanwhile; another fills it
    rows.batch->close();
    announce();
  }

  // What the threads do.
  Status read_batch(uint32_t thread, const std::stop_token& stop) {
    SampleReader reader(ring, dataset, plan, shapes, maybe_ahead ? &*maybe_ahead : nullptr);
    while (true) {
      STOKER_ASSIGN_OR_RETURN(RowTask rows, next_rows(thread, reader.rows_at_once(), stop));
      STOKER_RETURN_IF_ERROR(reader.fill(rows));
      finish(rows);
    }
  }

  Status read_ahead(uint32_t thread, Coordinator& coordinator, const std::stop_token& stop) {
    uint32_t started = 1;
    while (true) {
      for (; thread == 0 && started < maybe_ahead->wanted(); ++started)
        coordinator.start("read-ahead-" + std::to_string(started),
                          [this, started, &coordinator](std::stop_token its_stop) {
                            return read_ahead(started, coordinator, its_stop);
                          });
      STOKER_ASSIGN_OR_RETURN(RowTask row, next_row_to_fetch(thread, stop));
      ring.add_read_time({.total = maybe_ahead->fetch(row, stop)});
      maybe_ahead->put(std::move(row));
    }
  }
};

WorkerPool::WorkerPool(ring::ShmRing& ring, ring::ProducerId producer,
                       const dataset::Dataset& dataset, const dataset::SamplePlan& plan)
    : shared_(new Shared{.ring = ring,
                         .producer = producer,
                         .dataset = dataset,
                         .plan = plan,
                         .shapes = BatchShapes(dataset, plan)}) {
  assert(ring.layout().sample() == dataset.spec() && "the ring was made for other samples");
  assert(ring.layout().batch() == plan.options().batch && "the ring was made for another batch");
  assert(dataset.size() == plan.options().size && "the plan was made for another data set");
}

WorkerPool::~WorkerPool() {
  for (const auto& batch : shared_->work)
    if (!batch.idle()) shared_->ring.abandon(shared_->producer, batch.claim());
}

void WorkerPool::start(int threads, Coordinator& coordinator, PoolIndex index,
                       const ReadAheadOptions& ahead) {
  Shared& shared = *shared_;
  if (ahead.max_reads > 0) {
    shared.maybe_ahead.emplace(ahead, static_cast<uint32_t>(threads), shared.dataset, shared.plan);
    shared.max_batches = batches_for(ahead, shared.plan.options().batch);
    // The first starts the others when they are wanted.
    coordinator.start("read-ahead-0", [&shared, &coordinator](std::stop_token stop) {
      return shared.read_ahead(0, coordinator, stop);
    });
  }
  for (int i = 0; i < threads; ++i)
    coordinator.start("reader-" + std::to_string(i),
                      [&shared, number = static_cast<uint32_t>(i) * index.of + index.number](
                          std::stop_token stop) { return shared.read_batch(number, stop); });
}

}  // namespace stoker::feed
