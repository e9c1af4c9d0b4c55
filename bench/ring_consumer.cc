// Cost of a ready batch for the trainer: the time of pop() and release(), alone and with producers
// that wait for the released slot. The time spent waiting for data is excluded: a batch is always
// ready when the clock starts.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "bench/benches.h"
#include "bench/stopwatch.h"
#include "shared/ring/shm_ring.h"

namespace stoker::bench {
namespace {

constexpr auto kTimeout = std::chrono::seconds(30);
constexpr uint64_t kSlots = 8;

void produce(ring::ShmRing& ring, ring::ProducerId producer_id) {
  while (true) {
    const auto claim = ring.claim(producer_id, kTimeout);
    if (!claim.ok()) return;
    std::memset(claim->slot.data(), 1, claim->slot.size());
    ring.publish(producer_id, *claim);
  }
}

// Microseconds per batch.
Result<std::vector<double>> measure_costs(int producers, std::chrono::nanoseconds time) {
  const ring::BatchLayout layout({{.name = "x", .dtype = DType::kU8, .shape = {64 << 10}}}, 1);
  STOKER_ASSIGN_OR_RETURN(const auto ring, ring::ShmRing::create(layout, {.slots = kSlots}));
  std::vector<std::jthread> threads;
  for (int i = 0; i < producers; ++i) {
    STOKER_ASSIGN_OR_RETURN(const auto producer_id, ring->add_producer("bench"));
    threads.emplace_back([&ring, producer_id] { produce(*ring, producer_id); });
  }
  std::vector<double> costs;
  const Stopwatch total;
  Status error;
  while (total.elapsed() < time && error.ok()) {
    // A trainer that is compute-bound finds a full ring with waiting producers.
    while (ring->counters().ready < kSlots) std::this_thread::yield();
    const Stopwatch watch;
    const auto batch = ring->pop(kTimeout);
    if (batch.ok()) ring->release(batch->ticket);
    costs.push_back(watch.seconds() * 1e6);
    error = batch.status();
  }
  ring->close();
  if (!error.ok()) return error;
  return costs;
}

Result<double> quantile(int producers, double fraction, std::chrono::nanoseconds time) {
  STOKER_ASSIGN_OR_RETURN(auto all, measure_costs(producers, time));
  const auto at =
      all.begin() + static_cast<std::ptrdiff_t>(fraction * static_cast<double>(all.size() - 1));
  std::nth_element(all.begin(), at, all.end());
  return *at;
}

}  // namespace

Benchmark ring_consumer() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    const auto time = options.run_time();
    std::vector<Trial> trials;
    for (const int producers : {1, 4})
      for (const auto& [name, fraction] : {std::pair("p50", 0.5), std::pair("p99", 0.99)})
        trials.push_back({std::string(name) + " of a batch, " + std::to_string(producers) +
                              " waiting producer(s)",
                          "us",
                          [=, q = fraction] { return quantile(producers, q, time); },
                          {}});
    return trials;
  };
  return {"ring-consumer", "cost of a ready batch for the trainer", prepare};
}

}  // namespace stoker::bench
