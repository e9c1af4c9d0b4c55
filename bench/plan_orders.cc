// Time per sample lookup of the sample plan for each order, 10^12 samples into a run, compared with
// the start of a run; for the full order also compared with a list that is shuffled every epoch.
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/benches.h"
#include "bench/stopwatch.h"
#include "shared/data/order/sample_plan.h"

namespace stoker::bench {
namespace {

using config::ShuffleMode;

constexpr uint64_t kSamples = 1'281'167;  // size of ImageNet
constexpr uint64_t kShards = 1281;
constexpr uint64_t kBatch = 256;
constexpr uint64_t kLatePosition = 1'000'000'000'000;

// Prevents the compiler from removing the loops.
volatile uint64_t sink;

data::order::PlanOptions make_options(ShuffleMode shuffle) {
  data::order::PlanOptions plan_options{.size = kSamples,
                                        .batch = kBatch,
                                        .seed = 1,
                                        .shuffle = shuffle,
                                        .window = 10000,
                                        .shards_open = 8};
  for (uint64_t shard = 1; shard <= kShards; ++shard)
    plan_options.shard_ends.push_back(kSamples * shard / kShards);
  return plan_options;
}

struct Order {
  std::string name;
  data::order::PlanOptions plan_options;
};

std::vector<Order> orders() {
  Order mixture{"mixture of 4 by weight", make_options(ShuffleMode::kFull)};
  const uint64_t quarter = kSamples / 4;
  for (const double weight : {0.4, 0.3, 0.2})
    mixture.plan_options.datasets.push_back({.size = quarter, .weight = weight});
  mixture.plan_options.datasets.push_back({.size = kSamples - 3 * quarter, .weight = 0.1});
  Order weighted{"sampled by weight", make_options(ShuffleMode::kFull)};
  weighted.plan_options.datasets.push_back({.size = kSamples});
  for (uint64_t i = 0; i < kSamples; ++i)
    weighted.plan_options.datasets[0].sample_weights.push_back(static_cast<double>(i % 100));
  return {{"full", make_options(ShuffleMode::kFull)},
          {"none", make_options(ShuffleMode::kNone)},
          {"blocks of 10000", make_options(ShuffleMode::kBlock)},
          {"shards, 8 of 1281 open", make_options(ShuffleMode::kShards)},
          mixture,
          weighted};
}

Result<double> nanoseconds_per_sample(const data::order::SamplePlan& plan, uint64_t position,
                                      std::chrono::nanoseconds time) {
  const Stopwatch watch;
  uint64_t sum = 0, samples = 0;
  for (uint64_t ticket = position / kBatch; samples == 0 || watch.elapsed() < time; ++ticket)
    for (uint64_t row = 0; row < kBatch; ++row, ++samples) sum += plan.at(ticket, row).sample;
  sink = sum;
  return watch.seconds() * 1e9 / static_cast<double>(samples);
}

// The common approach of data loaders: a list in memory, shuffled for each epoch.
Result<double> nanoseconds_per_listed_sample(std::chrono::nanoseconds time) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> list(kSamples);
  std::iota(list.begin(), list.end(), uint64_t{0});
  const Stopwatch watch;
  uint64_t samples = 0;
  while (samples == 0 || watch.elapsed() < time) {
    std::shuffle(list.begin(), list.end(), random);
    sink = std::accumulate(list.begin(), list.end(), uint64_t{0});
    samples += kSamples;
  }
  return watch.seconds() * 1e9 / static_cast<double>(samples);
}

}  // namespace

Benchmark plan_orders() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    const auto time = options.run_time();
    std::vector<Trial> trials;
    for (Order& order : orders()) {
      const auto plan = std::make_shared<const data::order::SamplePlan>(order.plan_options);
      trials.push_back(
          {order.name + ", at position 10^12",
           "ns/sample",
           [=] { return nanoseconds_per_sample(*plan, kLatePosition, time); },
           {{"at position 0", [=] { return nanoseconds_per_sample(*plan, 0, time); }}}});
    }
    trials.front().baselines.push_back(
        {"list shuffled every epoch", [=] { return nanoseconds_per_listed_sample(time); }});
    return trials;
  };
  return {"plan-orders", "time per sample lookup, for each order of samples", prepare};
}

}  // namespace stoker::bench
