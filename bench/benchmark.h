// Benchmark: one named thing to measure, and the loop that runs it in turn with its peers.
//
// Owner:  a trial's functions keep alive what they need; destroying the trials cleans up.
// Errors: the first run that fails ends the benchmark with its Status.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/options.h"
#include "shared/base/status.h"

namespace stoker::bench {

using Measure = std::function<Result<double>()>;  // one run: the value, in the trial's unit

struct Baseline {
  std::string name;
  Measure run;
};

struct Trial {
  std::string metric;
  std::string unit;
  Measure run;
  std::vector<Baseline> baselines;  // may be empty
};

struct Benchmark {
  std::string name;
  std::string what;  // one line, for --list
  std::function<Result<std::vector<Trial>>(const Options&)> prepare;
};

// One trial and one of its peers (or none), over all runs.
struct Measurement {
  std::string bench;
  std::string metric;
  std::string unit;
  std::vector<double> values;
  std::string baseline;
  std::vector<double> baseline_values;  // as many as values, or none
};

std::string to_json(const Measurement& measurement);
double median(std::vector<double> values);

// Prints the lines of every benchmark (of options.only where it is set) to standard output, and
// trouble to standard error. The program's exit code.
int run_all(const std::vector<Benchmark>& benchmarks, const Options& options);

}  // namespace stoker::bench
