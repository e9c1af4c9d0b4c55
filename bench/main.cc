#include "bench/benches.h"
#include "bench/options.h"

int main(int argc, char** argv) {
  using namespace stoker::bench;
  int exit_code = 0;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  std::vector<Benchmark> benchmarks{plan_orders(),       ring_operations(), ring_bandwidth(),
                                    ring_consumer(),     queue_pairs(),     feed_text(),
                                    feed_rows(),         feed_images(),     feed_cold_cache(),
                                    checkpoint_commit(), snapshot_stall()};
#ifdef STOKER_WITH_TORCH
  benchmarks.push_back(evaluator());
  benchmarks.push_back(evaluator_without_cpu());
#endif
  return run_all(benchmarks, *options);
}
