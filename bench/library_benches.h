// The benchmarks of stoker-bench-libraries; each is defined in the file of the same name.
#pragma once

#include "bench/benchmark.h"

namespace stoker::bench {

Benchmark library_csv();
Benchmark library_glob();
Benchmark library_resize();
Benchmark library_tar();
Benchmark library_zip();

}  // namespace stoker::bench
