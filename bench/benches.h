// The benchmarks of stoker-bench; each is defined in the file of the same name.
#pragma once

#include "bench/benchmark.h"

namespace stoker::bench {

Benchmark plan_orders();
Benchmark ring_operations();
Benchmark ring_bandwidth();
Benchmark ring_consumer();
Benchmark queue_pairs();
Benchmark feed_text();
Benchmark feed_rows();
Benchmark feed_images();
Benchmark feed_cold_cache();
Benchmark checkpoint_commit();
Benchmark snapshot_stall();
// These two start stokerd and stoker-eval from the folder of stoker-bench.
Benchmark evaluator();
Benchmark evaluator_without_cpu();

}  // namespace stoker::bench
