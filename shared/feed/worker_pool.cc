#include "shared/feed/worker_pool.h"

#include <array>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/stage_timer.h"
#include "shared/feed/batch_assembly.h"
#include "shared/feed/batch_shapes.h"

namespace stoker::feed {
namespace {

// SampleReader: one thread's work: it fills rows of batches with their samples, and counts the time.
//
// Threads:  one; each reading thread has its own.
// Blocking: as Dataset::read_batch().
// Owner:    all that it refers to must outlive it.
// Errors:   a sample that cannot be read is reported through the ring and replaced by the plan's
//           stand-in; fill() fails with the last error when kMaxReplacements in a row cannot be read.

constexpr uint64_t kMaxReplacements = 16;

class SampleReader {
 public:
  // What is counted for each row costs as much as copying a small one. So rows are taken together,
  // as many as are read in so short a time that no thread waits long for another's.
  static constexpr std::chrono::microseconds kWorthTaking{20};
  static constexpr uint64_t kMaxRows = 32;

  // `maybe_ahead`: is told how long samples take, and asked what they wait for the disk.
  SampleReader(ring::ShmRing& ring, const data::Dataset& dataset,
               const data::order::SamplePlan& plan, const BatchShapes& shapes,
               ReadAhead* maybe_ahead)
      : ring_(ring),
        dataset_(dataset),
        plan_(plan),
        shapes_(shapes),
        maybe_ahead_(maybe_ahead),
        outputs_(ring.layout().sample().size()) {}
  ~SampleReader() { count(); }
  SampleReader(const SampleReader&) = delete;
  SampleReader& operator=(const SampleReader&) = delete;

  // How many rows to take next, at most kMaxRows.
  uint64_t rows_at_once() const { return is_to_probe() ? 1 : rows_at_once_; }
  // Fills the rows with their samples or the first stand-ins that can be read.
  Status fill(RowTask& rows);

 private:
  bool is_to_probe() const {
    return probe_is_due_ && maybe_ahead_ != nullptr && maybe_ahead_->options().adapts;
  }
  Status read(const RowTask& rows);
  // The rows from the `first`-th of these on.
  std::span<const std::span<std::byte>> row_outputs(const RowTask& rows, uint64_t first,
                                                    uint64_t count);
  Status read_replacement(const RowTask& rows, uint64_t which, Status error);
  std::string reason_text(const Status& error, uint64_t sample) const;
  void count();

  ring::ShmRing& ring_;
  const data::Dataset& dataset_;
  const data::order::SamplePlan& plan_;
  const BatchShapes& shapes_;
  ReadAhead* const maybe_ahead_;
  std::vector<std::span<std::byte>> outputs_;
  std::array<data::order::PlannedSample, kMaxRows> planned_;
  std::array<data::SampleReadRequest, kMaxRows> samples_;
  uint64_t rows_at_once_ = 1;  // as the time says that the last ones took
  uint64_t fills_ = 0;
  bool probe_is_due_ = true;  // whether reads wait for the disk
  // Since they were last added to the ring's.
  ring::ReadTime spent_;
  std::chrono::nanoseconds measured_{0};        // of spent_: of the samples that were measured
  data::StageTimes stages_;                     // of those
  std::array<double, data::kStages> shares_{};  // of the time of those measured last
};

using Clock = std::chrono::steady_clock;
// Read time is added to the ring in such portions, and then it is looked whether reads are slow.
constexpr auto kCountEvery = std::chrono::milliseconds(5);
constexpr uint64_t kMeasureEvery = 16;  // of one fill() in so many the stages are measured

Status SampleReader::fill(RowTask& rows) {
  const bool measures = fills_++ % kMeasureEvery == 0;
  std::optional<data::StageTimer> measurement;
  if (measures) measurement.emplace(stages_);
  const auto start = Clock::now();
  std::chrono::nanoseconds fetching{0};
  if (is_to_probe() && rows.count == 1 && !rows.maybe_bytes) {
    probe_is_due_ = false;
    fetching = maybe_ahead_->fetch(rows, std::nullopt);
  }
  const Status status = read(rows);
  const std::chrono::nanoseconds took = Clock::now() - start;
  if (rows.maybe_bytes) maybe_ahead_->record_work(took - fetching);
  const auto worth = static_cast<int64_t>(rows.count) * std::chrono::nanoseconds(kWorthTaking);
  rows_at_once_ = static_cast<uint64_t>(
      std::clamp<int64_t>(worth / std::max(took, std::chrono::nanoseconds(1)), 1, kMaxRows));
  spent_.total += took;
  if (measures) measured_ += took;
  if (spent_.total >= kCountEvery) count();
  return status.with_context("neither a sample nor any of its " + std::to_string(kMaxReplacements) +
                             " stand-ins can be read; the last one");
}

Status SampleReader::read(const RowTask& rows) {
  plan_.at(rows.batch->claim().ticket, rows.first, std::span(planned_).first(rows.count));
  for (uint64_t i = 0; i < rows.count; ++i)
    samples_[i] = {.sample = planned_[i].sample, .random_key = plan_.random_key(planned_[i])};
  for (uint64_t done = 0; done < rows.count;) {
    const uint64_t left = rows.count - done;
    data::BatchReadResult read;
    {
      const data::files::PrefetchedBytes::Held held(rows.maybe_bytes.get());
      read = dataset_.read_batch(std::span(samples_).subspan(done, left),
                                 row_outputs(rows, done, left));
    }
    done += read.good;
    if (read.status.ok()) break;
    STOKER_RETURN_IF_ERROR(read_replacement(rows, done++, std::move(read.status)));
  }
  return {};
}

std::span<const std::span<std::byte>> SampleReader::row_outputs(const RowTask& rows, uint64_t first,
                                                                uint64_t count) {
  const ring::Claim& claim = rows.batch->claim();
  const ring::BatchLayout& layout = shapes_.of(claim.ticket);
  for (size_t tensor = 0; tensor < outputs_.size(); ++tensor)
    outputs_[tensor] = layout.rows(claim.slot, tensor, rows.first + first, count);
  return outputs_;
}

Status SampleReader::read_replacement(const RowTask& rows, uint64_t which, Status error) {
  const uint64_t ticket = rows.batch->claim().ticket;
  data::order::PlannedSample planned = planned_[which];
  const auto outputs = row_outputs(rows, which, 1);
  for (uint64_t attempt = 1; !error.ok(); ++attempt) {
    ring_.report_sample_error({.ticket = ticket,
                               .sample = planned.sample,
                               .code = error.code(),
                               .reason = reason_text(error, planned.sample)});
    if (attempt > kMaxReplacements) break;
    planned = plan_.replacement(ticket, rows.first + which, attempt);
    error = dataset_.read(planned.sample, plan_.random_key(planned), outputs);
  }
  return error;
}

// Without the file, which whoever takes the report knows: a long path would fill what a report holds.
std::string SampleReader::reason_text(const Status& error, uint64_t sample) const {
  const std::string& message = error.message();
  const std::string file = dataset_.source(sample).file + ": ";
  return message.starts_with(file) ? message.substr(file.size()) : message;
}

// The samples that were measured stand for all; where there was none, those before it do.
void SampleReader::count() {
  if (measured_.count() > 0) {
    for (size_t stage = 0; stage < data::kStages; ++stage)
      shares_[stage] =
          static_cast<double>(stages_.of[stage].count()) / static_cast<double>(measured_.count());
    measured_ = {};
    stages_ = {};
  }
  const auto part = [this](data::Stage stage) {
    return std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(spent_.total.count()) *
                                                         shares_[static_cast<size_t>(stage)]));
  };
  spent_.decode = part(data::Stage::kDecode);
  spent_.transform = part(data::Stage::kTransform);
  ring_.add_read_time(std::exchange(spent_, {}));
  probe_is_due_ = true;
}

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
  const data::Dataset& dataset;
  const data::order::SamplePlan& plan;
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

WorkerPool::WorkerPool(ring::ShmRing& ring, ring::ProducerId producer, const data::Dataset& dataset,
                       const data::order::SamplePlan& plan)
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
