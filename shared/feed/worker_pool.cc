#include "shared/feed/worker_pool.h"

#include <array>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/thread_registry.h"
#include "shared/feed/batch_assembly.h"
#include "shared/feed/batch_shapes.h"
#include "shared/feed/sample_reader.h"

namespace stoker::feed {
namespace {

constexpr auto kMaxWait = std::chrono::milliseconds(100);
// Interval at which unneeded read-ahead threads check for the end.
constexpr auto kMaxRest = std::chrono::seconds(10);
constexpr auto kMaxIdle = std::chrono::seconds(1);  // for needed ones
// Batches that a pool works on at a time without read-ahead. With two, threads have work while the
// last samples of one are read.
constexpr size_t kBatches = 2;
constexpr size_t kMaxBatches = 16;

// Enough rows for all reads in flight plus as many that are waiting to be decoded.
size_t batches_for(const ReadAheadOptions& ahead, uint64_t batch) {
  const uint64_t rows = 2 * static_cast<uint64_t>(ahead.max_reads);
  return std::min(kBatches + (rows + batch - 1) / batch, kMaxBatches);
}

std::unique_ptr<ThreadRecord> read_ahead_record(uint32_t number) {
  return std::make_unique<ThreadRecord>("read-ahead-" + std::to_string(number), "read ahead");
}

}  // namespace

struct WorkerPool::Shared {
  // Constant after construction.
  ring::ShmRing& ring;
  const ring::ProducerId producer;
  const data::Dataset& dataset;
  const data::order::SamplePlan& plan;
  const BatchShapes shapes;
  // Set when the pool starts.
  std::optional<ReadAhead> maybe_ahead = {};
  size_t max_batches = kBatches;

  // Own synchronization.
  std::array<BatchAssembly, kMaxBatches> work = {};
  std::atomic<uint64_t> opened{0};   // total number of batches; written by the claiming thread
  std::atomic_flag claiming;         // held by the thread that waits for a ticket
  std::atomic<uint64_t> changes{0};  // batch opened or finished, or end reached
  std::atomic<bool> ended{false};    // no more tickets

  // Only for waiting on `changes` and on the end.
  std::mutex mutex;
  std::condition_variable_any changed;
  std::condition_variable_any idle_threads;  // for idle threads; a new batch must not wake them
  // For read-ahead threads: a row is available, or possibly a batch can be claimed. One thread is
  // woken, and it wakes the next if there is more work. Waking all of them for each batch would
  // cost more than decoding it.
  std::condition_variable_any unread;

  void notify_change() {
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

  void wait_idle(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    idle_threads.wait_for(lock, stop, kMaxWait, [this] { return ended.load(); });
  }

  bool reads_ahead() const { return maybe_ahead && maybe_ahead->wanted() > 0; }

  // Rows of the oldest batch come first because the trainer waits for that batch.
  std::optional<RowTask> find_rows(uint64_t max_rows) {
    while (true) {
      BatchAssembly* oldest = nullptr;
      for (size_t index = 0; index < max_batches; ++index)
        if (work[index].has_rows() && (!oldest || work[index].order() < oldest->order()))
          oldest = &work[index];
      if (!oldest) return std::nullopt;
      if (const auto range = oldest->take_rows(max_rows))
        return RowTask{.batch = oldest, .first = range->first, .count = range->count};
    }
  }

  // Waits for a ticket if there is room for a batch and no other thread is waiting for one. True:
  // search for a row again.
  Result<bool> try_claim_ticket() {
    if (claiming.test_and_set(std::memory_order_acquire)) return false;
    bool has_opened = false;
    Status error;
    const size_t batches = reads_ahead() ? max_batches : kBatches;
    for (size_t index = 0; index < batches; ++index) {
      if (!work[index].idle()) continue;
      const auto claim = ring.claim(producer, kMaxWait);
      has_opened = claim.ok();
      if (has_opened) {
        work[index].open(*claim, plan.options().batch, opened++);
      } else {
        error = claim.status();
      }
      break;
    }
    claiming.clear(std::memory_order_release);
    if (has_opened) notify_change();
    if (has_opened || error.code() == StatusCode::kTimedOut) return true;
    if (!error.ok()) return error;
    return false;
  }

  bool is_active(uint32_t thread) const {
    const uint32_t wanted = ring.active_workers();
    return wanted == 0 || thread < wanted;
  }

  Status end_of_data() {
    ended = true;
    notify_change();
    idle_threads.notify_all();
    unread.notify_all();
    if (maybe_ahead) maybe_ahead->end();
    return Status(StatusCode::kClosed, "end of data");
  }

  // Up to `max_rows` rows whose bytes have not been read. Calls `wait` and returns nothing if there
  // are none. kClosed: end of data.
  template <typename Wait>
  Result<std::optional<RowTask>> find_unread_rows(uint64_t max_rows, const Wait& wait) {
    const uint64_t seen = changes.load();
    if (auto rows = find_rows(max_rows)) return rows;
    if (ended.load()) return end_of_data();
    const auto poll_again = try_claim_ticket();
    if (!poll_again.ok())
      return poll_again.status().code() == StatusCode::kClosed ? end_of_data()
                                                               : poll_again.status();
    if (!*poll_again) wait(seen);
    return std::optional<RowTask>();
  }

  // Up to `max_rows` rows to decode for the thread with this number. kClosed: end of data.
  Result<RowTask> next_rows(uint32_t thread, uint64_t max_rows, const std::stop_token& stop) {
    while (!stop.stop_requested() && !ring.closed()) {
      if (!is_active(thread)) {
        if (ended.load()) break;
        wait_idle(stop);
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

  // A row for a read-ahead thread.
  Result<RowTask> next_row_to_fetch(uint32_t thread, const std::stop_token& stop) {
    while (!stop.stop_requested() && !ring.closed() && !ended.load()) {
      if (thread >= maybe_ahead->wanted()) {
        unread.notify_one();  // this thread might have consumed a wakeup meant for another one
        maybe_ahead->wait_until_wanted(thread, kMaxRest, stop);
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
    // publish() returns false if the ticket was requeued; another producer then fills it.
    ring.publish(producer, rows.batch->claim());
    rows.batch->close();
    notify_change();
  }

  // Main loop of a worker thread.
  Status read_batch(uint32_t thread, const std::stop_token& stop) {
    SampleReader reader(ring, dataset, plan, shapes, maybe_ahead ? &*maybe_ahead : nullptr);
    while (true) {
      STOKER_ASSIGN_OR_RETURN(RowTask rows, next_rows(thread, reader.group_rows(), stop));
      STOKER_RETURN_IF_ERROR(reader.fill(rows));
      finish(rows);
    }
  }

  Status read_ahead(uint32_t thread, Coordinator& coordinator, const std::stop_token& stop) {
    uint32_t started = 1;
    while (true) {
      for (; thread == 0 && started < maybe_ahead->wanted(); ++started)
        coordinator.start(read_ahead_record(started),
                          [this, started, &coordinator](std::stop_token its_stop) {
                            return read_ahead(started, coordinator, its_stop);
                          });
      STOKER_ASSIGN_OR_RETURN(RowTask row, next_row_to_fetch(thread, stop));
      ring.add_read_time({.total = maybe_ahead->fetch(row, stop)});
      maybe_ahead->put(std::move(row));
    }
  }
};

WorkerPool::WorkerPool(ring::ShmRing& ring, ring::ProducerId producer, const data::Dataset& dataset,
                       const data::order::SamplePlan& plan)
    : shared_(new Shared{.ring = ring,
                         .producer = producer,
                         .dataset = dataset,
                         .plan = plan,
                         .shapes = BatchShapes(dataset, plan)}) {
  assert(ring.layout().sample() == dataset.spec() && "the ring has another sample layout");
  assert(ring.layout().batch() == plan.options().batch && "the ring has another batch size");
  assert(dataset.size() == plan.options().size && "the plan is for another dataset");
}

WorkerPool::~WorkerPool() {
  for (const auto& batch : shared_->work)
    if (!batch.idle()) shared_->ring.abandon(shared_->producer, batch.claim());
}

void WorkerPool::start(int threads, Coordinator& coordinator, PoolIndex index,
                       const ReadAheadOptions& ahead) {
  Shared& shared = *shared_;
  if (ahead.max_reads > 0) {
    shared.maybe_ahead.emplace(ahead, static_cast<uint32_t>(threads),
                               shared.dataset.info().maybe_files, shared.plan);
    shared.max_batches = batches_for(ahead, shared.plan.options().batch);
    // The first read-ahead thread starts the others when they are wanted.
    coordinator.start(read_ahead_record(0), [&shared, &coordinator](std::stop_token stop) {
      return shared.read_ahead(0, coordinator, stop);
    });
  }
  for (int i = 0; i < threads; ++i)
    coordinator.start(std::make_unique<ThreadRecord>("worker-" + std::to_string(i), "read samples"),
                      [&shared, number = static_cast<uint32_t>(i) * index.of + index.number](
                          std::stop_token stop) { return shared.read_batch(number, stop); });
}

}  // namespace stoker::feed
