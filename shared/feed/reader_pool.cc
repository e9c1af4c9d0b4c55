#include "shared/feed/reader_pool.h"

#include <array>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shared/dataset/stage_time.h"
#include "shared/feed/batch_in_work.h"

namespace stoker::feed {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLongestWait = std::chrono::milliseconds(100);
constexpr auto kCountEvery =
    std::chrono::milliseconds(5);       // read time is added to the ring in such portions
constexpr uint64_t kMeasureEvery = 16;  // samples: of one in so many the stages are measured

struct Row {
  BatchInWork* batch = nullptr;
  uint64_t index = 0;
};

}  // namespace

struct ReaderPool::Shared {
  // Constant after construction.
  ring::ShmRing& ring;
  const ring::ProducerId producer;
  const dataset::Dataset& dataset;
  const dataset::SamplePlan& plan;

  // Own synchronisation.
  std::array<BatchInWork, 2> work;
  std::atomic<uint32_t> newest{0};   // hint: which of `work` was opened last
  std::atomic_flag claiming;         // held by the one thread that waits for a ticket
  std::atomic<uint64_t> changes{0};  // a batch was opened or finished, or the end came
  std::atomic<bool> ended{false};    // no more tickets

  // For the waits on `changes` and on the end only.
  std::mutex mutex;
  std::condition_variable_any changed;
  std::condition_variable_any rested;  // apart, so that a batch does not wake who has no part in it

  void announce() {
    {
      const std::lock_guard lock(mutex);
      ++changes;
    }
    changed.notify_all();
  }

  void wait_for_change(uint64_t seen, std::stop_token stop) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, stop, kLongestWait, [&] { return changes.load() != seen; });
  }

  void rest(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    rested.wait_for(lock, stop, kLongestWait, [this] { return ended.load(); });
  }

  // Rows of the older batch first: the trainer waits for that one.
  std::optional<Row> maybe_take_row() {
    const uint32_t first = 1 - newest.load(std::memory_order_relaxed);
    for (const uint32_t which : {first, 1 - first})
      if (const auto row = work[which].maybe_take_row()) return Row{&work[which], *row};
    return std::nullopt;
  }

  // Waits for a ticket when there is room for a batch and no other thread does. True: look for a
  // row again.
  Result<bool> claim_if_mine() {
    if (claiming.test_and_set(std::memory_order_acquire)) return false;
    bool opened = false;
    Status trouble;
    for (uint32_t which = 0; which < work.size() && !opened; ++which) {
      if (!work[which].idle()) continue;
      const auto claim = ring.claim(producer, kLongestWait);
      opened = claim.ok();
      if (opened) {
        work[which].open(*claim, plan.settings().batch);
        newest.store(which, std::memory_order_relaxed);
      } else {
        trouble = claim.status();
      }
      break;
    }
    claiming.clear(std::memory_order_release);
    if (opened) announce();
    if (opened || trouble.code() == Code::kTimedOut) return true;
    if (!trouble.ok()) return trouble;
    return false;
  }

  bool is_wanted(uint32_t thread) const {
    const uint32_t wanted = ring.wanted_readers();
    return wanted == 0 || thread < wanted;
  }

  // kClosed: the end. Otherwise a row to read for the thread with that number.
  Result<Row> next_row(uint32_t thread, const std::stop_token& stop) {
    while (!stop.stop_requested() && !ring.closed()) {
      const uint64_t seen = changes.load();
      if (!is_wanted(thread)) {
        if (ended.load()) break;
        rest(stop);
        continue;
      }
      if (const auto row = maybe_take_row()) return *row;
      if (ended.load()) break;
      const auto look_again = claim_if_mine();
      if (look_again.ok()) {
        if (!*look_again) wait_for_change(seen, stop);
        continue;
      }
      if (look_again.status().code() != Code::kClosed) return look_again.status();
      ended = true;
      announce();
      rested.notify_all();
    }
    return Status(Code::kClosed, "end of data");
  }

  void finish_row(const Row& row) {
    ring.note_sample(producer);
    if (!row.batch->finish_row()) return;
    ring.publish(producer, row.batch->claim());  // false: reissued meanwhile; another fills it
    row.batch->close();
    announce();
  }
};

namespace {

// One thread's work: it reads rows until there are no more.
class Reader {
 public:
  Reader(ring::ShmRing& ring, const dataset::Dataset& dataset, const dataset::SamplePlan& plan)
      : ring_(ring), dataset_(dataset), plan_(plan), outputs_(ring.layout().sample().size()) {}
  ~Reader() { count(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Fills the row with its sample or the first stand-in that can be read.
  Status fill(const ring::Claim& claim, uint64_t row) {
    for (size_t tensor = 0; tensor < outputs_.size(); ++tensor)
      outputs_[tensor] = ring_.layout().row(claim.slot, tensor, row);
    const bool measures = rows_++ % kMeasureEvery == 0;
    std::optional<dataset::StageMeasurement> measurement;
    if (measures) measurement.emplace(stages_);
    const auto start = Clock::now();
    Status status;
    for (uint64_t attempt = 0; attempt <= kMaxStandIns; ++attempt) {
      const auto planned =
          attempt == 0 ? plan_.at(claim.ticket, row) : plan_.stand_in(claim.ticket, row, attempt);
      status = dataset_.read(planned.sample, plan_.draw_key(planned), outputs_);
      if (status.ok()) break;
      ring_.report_bad_sample({.ticket = claim.ticket,
                               .sample = planned.sample,
                               .code = status.code(),
                               .reason = status.message()});
    }
    const auto took = Clock::now() - start;
    spent_.total += took;
    if (measures) measured_ += took;
    if (spent_.total >= kCountEvery) count();
    return status.with_context("neither a sample nor any of its " + std::to_string(kMaxStandIns) +
                               " stand-ins can be read; the last one");
  }

 private:
  // The samples that were measured stand for all; where there was none, those before it do.
  void count() {
    if (measured_.count() > 0) {
      for (size_t stage = 0; stage < dataset::kStages; ++stage)
        shares_[stage] =
            static_cast<double>(stages_.of[stage].count()) / static_cast<double>(measured_.count());
      measured_ = {};
      stages_ = {};
    }
    const auto part = [this](dataset::Stage stage) {
      return std::chrono::nanoseconds(static_cast<int64_t>(
          static_cast<double>(spent_.total.count()) * shares_[static_cast<size_t>(stage)]));
    };
    spent_.decode = part(dataset::Stage::kDecode);
    spent_.transform = part(dataset::Stage::kTransform);
    ring_.add_read_time(std::exchange(spent_, {}));
  }

  ring::ShmRing& ring_;
  const dataset::Dataset& dataset_;
  const dataset::SamplePlan& plan_;
  std::vector<std::span<std::byte>> outputs_;
  uint64_t rows_ = 0;
  // Since they were last added to the ring's.
  ring::ReadTime spent_;
  std::chrono::nanoseconds measured_{0};           // of spent_: of the samples that were measured
  dataset::StageTimes stages_;                     // of those
  std::array<double, dataset::kStages> shares_{};  // of the time of those measured last
};

}  // namespace

ReaderPool::ReaderPool(ring::ShmRing& ring, ring::ProducerId producer,
                       const dataset::Dataset& dataset, const dataset::SamplePlan& plan)
    : shared_(new Shared{.ring = ring, .producer = producer, .dataset = dataset, .plan = plan}) {
  assert(ring.layout().sample() == dataset.spec() && "the ring was made for other samples");
  assert(ring.layout().batch() == plan.settings().batch && "the ring was made for another batch");
  assert(dataset.size() == plan.settings().size && "the plan was made for another data set");
}

ReaderPool::~ReaderPool() {
  for (const auto& batch : shared_->work)
    if (!batch.idle()) shared_->ring.abandon(shared_->producer, batch.claim());
}

void ReaderPool::start(int threads, Coordinator& coordinator, PoolPlace place) {
  for (int i = 0; i < threads; ++i)
    coordinator.start("reader-" + std::to_string(i),
                      [&shared = *shared_, number = static_cast<uint32_t>(i) * place.of +
                                                    place.number](std::stop_token stop) -> Status {
                        Reader reader(shared.ring, shared.dataset, shared.plan);
                        while (true) {
                          STOKER_ASSIGN_OR_RETURN(const Row row, shared.next_row(number, stop));
                          STOKER_RETURN_IF_ERROR(reader.fill(row.batch->claim(), row.index));
                          shared.finish_row(row);
                        }
                      });
}

}  // namespace stoker::feed
