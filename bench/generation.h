// generation_benchmark: tokens per second that a language model generates on the CPU with one thread,
// with and without the cache of keys and values.
#pragma once

#include "bench/benchmark.h"

namespace stoker::bench {

Benchmark generation_benchmark();

}  // namespace stoker::bench
