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

constexpr auto kPatience = std::chrono::seconds(30);  // generous, for a busy machine
constexpr uint64_t kClockCheckInterval = 64;

// Produces until the ring is closed.
Status produce(ring::ShmRing& ring, ring::ProducerId me,
               const std::function<void(std::span<std::byte>)>& fill) {
  while (true) {
    const auto claim = ring.claim(me, kPatience);
    if (!claim.ok())
      return claim.status().code() == StatusCode::kClosed ? Status() : claim.status();
    fill(claim->slot);
    ring.publish(me, *claim);
  }
}

Status take(ring::ShmRing& ring, uint64_t batches) {
  for (uint64_t i = 0; i < batches; ++i) {
    STOKER_ASSIGN_OR_RETURN(const auto batch, ring.pop(kPatience));
    ring.release(batch.ticket);
  }
  return {};
}

Result<double> consume(ring::ShmRing& ring, std::chrono::nanoseconds time,
                       uint64_t check_interval) {
  STOKER_RETURN_IF_ERROR(take(ring, 2 * ring.slots()));
  const Stopwatch watch;
  uint64_t batches = 0;
  do {
    STOKER_RETURN_IF_ERROR(take(ring, check_interval));
    batches += check_interval;
  } while (watch.elapsed() < time);
  return static_cast<double>(batches) / watch.seconds();
}

// Joins the producer after the ring has been closed.
using Join = std::function<Status()>;

Result<Join> start_producer(ring::ShmRing& ring, const RingRun& run) {
  STOKER_ASSIGN_OR_RETURN(const ring::ProducerId me, ring.add_producer("bench"));
  if (run.producer == Side::kThread) {
    auto thread =
        std::make_shared<std::jthread>([&ring, &run, me] { (void)produce(ring, me, run.fill); });
    return Join([thread] {
      thread->join();
      return Status();
    });
  }
  // Attaches through the file descriptor with its own mapping, as a worker process does.
  STOKER_ASSIGN_OR_RETURN(auto process, ChildProcess::fork([&ring, &run, me]() -> Status {
                            STOKER_ASSIGN_OR_RETURN(
                                const auto mine, ring::ShmRing::attach(UniqueFd(::dup(ring.fd()))));
                            return produce(*mine, me, run.fill);
                          }));
  auto held = std::make_shared<ChildProcess>(std::move(process));
  return Join([held] { return held->join(); });
}

}  // namespace

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
