#include "bench/ring_run.h"

#include <unistd.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "bench/child_process.h"
#include "bench/stopwatch.h"
#include "shared/ring/shm_ring.h"

namespace stoker::bench {
namespace {

constexpr auto kTimeout = std::chrono::seconds(30);  // generous, for a busy machine
constexpr uint64_t kClockCheckInterval = 64;

// Produces until the ring is closed.
Status produce(ring::ShmRing& ring, ring::ProducerId producer_id,
               const std::function<void(std::span<std::byte>)>& fill) {
  while (true) {
    const auto claim = ring.claim(producer_id, kTimeout);
    if (!claim.ok())
      return claim.status().code() == StatusCode::kClosed ? Status() : claim.status();
    fill(claim->slot);
    ring.publish(producer_id, *claim);
  }
}

Result<double> consume(ring::ShmRing& ring, std::chrono::nanoseconds time,
                       uint64_t check_interval) {
  STOKER_RETURN_IF_ERROR(consume_batches(ring, 2 * ring.slots()));
  const Stopwatch watch;
  uint64_t batches = 0;
  do {
    STOKER_RETURN_IF_ERROR(consume_batches(ring, check_interval));
    batches += check_interval;
  } while (watch.elapsed() < time);
  return static_cast<double>(batches) / watch.seconds();
}

// Joins the producer after the ring has been closed.
using Join = std::function<Status()>;

Result<Join> start_producer(ring::ShmRing& ring, const RingRun& run) {
  STOKER_ASSIGN_OR_RETURN(const ring::ProducerId producer_id, ring.add_producer("bench"));
  if (run.producer == Side::kThread) {
    auto thread = std::make_shared<std::jthread>(
        [&ring, &run, producer_id] { (void)produce(ring, producer_id, run.fill); });
    return Join([thread] {
      thread->join();
      return Status();
    });
  }
  // Attaches through the file descriptor with its own mapping, as a worker process does.
  STOKER_ASSIGN_OR_RETURN(auto process, ChildProcess::fork([&ring, &run, producer_id]() -> Status {
                            STOKER_ASSIGN_OR_RETURN(
                                const auto own_ring,
                                ring::ShmRing::attach(UniqueFd(::dup(ring.fd()))));
                            return produce(*own_ring, producer_id, run.fill);
                          }));
  auto child = std::make_shared<ChildProcess>(std::move(process));
  return Join([child] { return child->join(); });
}

}  // namespace

Status consume_batches(ring::ShmRing& ring, uint64_t batches) {
  for (uint64_t i = 0; i < batches; ++i) {
    STOKER_ASSIGN_OR_RETURN(const auto batch, ring.pop(kTimeout));
    ring.release(batch.ticket);
  }
  return {};
}

Result<double> batches_per_second(const RingRun& run, std::chrono::nanoseconds time) {
  STOKER_ASSIGN_OR_RETURN(const auto ring, ring::ShmRing::create(run.layout, {.slots = run.slots}));
  STOKER_ASSIGN_OR_RETURN(const Join join, start_producer(*ring, run));
  const bool tiny = run.layout.slot_bytes() < 4096;
  const auto result = consume(*ring, time, tiny ? kClockCheckInterval : 1);
  ring->close();
  STOKER_RETURN_IF_ERROR(join());
  return result;
}

}  // namespace stoker::bench
