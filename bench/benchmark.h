// Benchmark: a named set of trials, and the loop that runs each trial alternately with its
// baselines.
//
// Ownership: the functions of a trial hold what they need; destroying the trials cleans up.
// Errors:    the first failed run ends the benchmark with its Status.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/options.h"
#include "shared/base/status.h"

namespace stoker::bench {

using Measure = std::function<Result<double>()>;  // one run; returns the value in the trial's unit

struct Baseline {
  std::string name;
  Measure run;
};

struct Trial {
  std::string metric;
  std::string unit;
  Measure run;
  std::vector<Baseline> baselines;  // can be empty
};

struct Benchmark {
  std::string name;
  std::string description;  // one line, for --list
  std::function<Result<std::vector<Trial>>(const Options&)> prepare;
};

// The values of a trial and of one baseline (or none) over all runs.
struct Measurement {
  std::string bench;
  std::string metric;
  std::string unit;
  std::vector<double> values;
  std::string baseline;
  std::vector<double> baseline_values;  // as many as `values`, or none
};

// A line of docs/benchmarks.md. Its `ratio` is the median of the ratios of the runs, or null if a
// baseline value is 0.
std::string to_json(const Measurement& measurement);
double median(std::vector<double> values);

// Prints the lines of every benchmark (or of options.only) to standard output and errors to
// standard error. Returns the exit code of the program.
int run_all(const std::vector<Benchmark>& benchmarks, const Options& options);

}  // namespace stoker::bench
