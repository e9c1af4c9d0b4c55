#include "bench/feed_run.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "bench/cpu_time.h"
#include "bench/ring_run.h"
#include "bench/stopwatch.h"
#include "shared/base/coordinator.h"
#include "shared/data/order/sample_plan.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/feed/quarantine_table.h"
#include "shared/feed/worker_pool.h"
#include "shared/ring/shm_ring.h"

namespace stoker::bench {
namespace {

constexpr auto kJoinTimeout = std::chrono::seconds(10);

Rate rate_of(uint64_t count, const Stopwatch& watch, double cpu_start) {
  const auto num_calls = static_cast<double>(count);
  return {.per_second = num_calls / watch.seconds(),
          .per_cpu_second = num_calls / (cpu_seconds() - cpu_start)};
}

Result<Rate> consume(ring::ShmRing& ring, uint64_t unmeasured, std::chrono::nanoseconds time) {
  STOKER_RETURN_IF_ERROR(consume_batches(ring, std::max(unmeasured, 2 * ring.slots())));
  const Stopwatch watch;
  const double cpu_start = cpu_seconds();
  uint64_t batches = 0;
  do {
    STOKER_RETURN_IF_ERROR(consume_batches(ring, 1));
    ++batches;
  } while (watch.elapsed() < time);
  return rate_of(batches * ring.layout().batch(), watch, cpu_start);
}

// Sample errors would be replaced and counted as read samples.
Status check_no_sample_errors(ring::ShmRing& ring) {
  const auto errors = ring.drain_sample_errors();
  if (errors.empty()) return {};
  return Status(errors.front().code, errors.front().reason);
}

}  // namespace

Result<std::unique_ptr<data::Dataset>> open_train_set(const config::DatasetConfig& config,
                                                      const std::string& index_dir,
                                                      uint64_t cache_bytes) {
  return data::pipeline::open_dataset("train", config, index_dir, {}, cache_bytes);
}

Result<Rate> sample_rate(const data::Dataset& dataset, const FeedRun& run,
                         std::chrono::nanoseconds time) {
  const ring::BatchLayout layout(dataset.spec(), run.batch);
  STOKER_ASSIGN_OR_RETURN(const auto ring, ring::ShmRing::create(layout, {.slots = kSlots}));
  STOKER_ASSIGN_OR_RETURN(const auto producer, ring->add_producer("bench"));
  const data::order::SamplePlan plan({.size = dataset.size(), .batch = run.batch});
  STOKER_ASSIGN_OR_RETURN(const auto quarantine,
                          feed::QuarantineTable::create(1, static_cast<uint32_t>(run.threads)));
  const feed::CrashTrackingDataset guarded(dataset, quarantine, 0);
  feed::WorkerPool pool(*ring, producer, guarded, plan);
  Coordinator coordinator;
  pool.start(run.threads, coordinator, {}, run.ahead);
  const auto rate = consume(*ring, run.unmeasured, time);
  ring->close();
  STOKER_RETURN_IF_ERROR(coordinator.join(kJoinTimeout));
  STOKER_RETURN_IF_ERROR(check_no_sample_errors(*ring));
  return rate;
}

Result<Rate> call_rate(int threads, std::chrono::nanoseconds time,
                       const std::function<Status(uint64_t)>& read) {
  std::atomic<uint64_t> calls{0};
  std::atomic<bool> is_done{false};
  Coordinator coordinator;
  const Stopwatch watch;
  const double cpu_start = cpu_seconds();
  for (int thread = 0; thread < threads; ++thread)
    coordinator.start("baseline" + std::to_string(thread), [&, thread](std::stop_token) -> Status {
      uint64_t num_calls = 0;
      do {  // at least once, because on a busy machine the thread can start too late
        STOKER_RETURN_IF_ERROR(
            read(static_cast<uint64_t>(thread) + num_calls * static_cast<uint64_t>(threads)));
        ++num_calls;
      } while (!is_done.load(std::memory_order_relaxed));
      calls += num_calls;
      return {};
    });
  coordinator.wait_for_stop(time);
  is_done = true;
  STOKER_RETURN_IF_ERROR(coordinator.join(kJoinTimeout));
  return rate_of(calls.load(), watch, cpu_start);
}

Result<double> samples_per_second(const data::Dataset& dataset, const FeedRun& run,
                                  std::chrono::nanoseconds time) {
  STOKER_ASSIGN_OR_RETURN(const Rate rate, sample_rate(dataset, run, time));
  return rate.per_second;
}

Result<double> calls_per_second(int threads, std::chrono::nanoseconds time,
                                const std::function<Status(uint64_t)>& read) {
  STOKER_ASSIGN_OR_RETURN(const Rate rate, call_rate(threads, time, read));
  return rate.per_second;
}

int worker_threads() {
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
}

}  // namespace stoker::bench
