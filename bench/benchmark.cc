#include "bench/benchmark.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/machine.h"

namespace stoker::bench {
namespace {

boost::json::array spread_of(const std::vector<double>& values) {
  const auto [lowest, highest] = std::minmax_element(values.begin(), values.end());
  return {*lowest, *highest};
}

Status run_once(const Measure& measure, std::vector<double>& values) {
  STOKER_ASSIGN_OR_RETURN(const double value, measure());
  values.push_back(value);
  return {};
}

// Each run measures the trial and all baselines in turn. The starting one rotates, and every second
// run goes in reverse order, so that none of them always finds caches, clock rate and disk as left
// by the same predecessor.
Status measure_alternately(const Trial& trial, int runs, std::vector<std::vector<double>>& values) {
  values.resize(1 + trial.baselines.size());
  const size_t num_sides = values.size();
  for (size_t run = 0; run < static_cast<size_t>(runs); ++run) {
    for (size_t i = 0; i < num_sides; ++i) {
      const size_t position = run % 2 == 0 ? i : num_sides - 1 - i;
      const size_t side = (position + run / 2) % num_sides;
      ::sync();  // flush pending writes of the previous measurement
      STOKER_RETURN_IF_ERROR(
          run_once(side == 0 ? trial.run : trial.baselines[side - 1].run, values[side]));
    }
  }
  return {};
}

// `only` is a name or the first word of several: "step" matches step-gpt and step-mlp. Empty: all.
bool is_selected(const std::string& name, const std::string& only) {
  return only.empty() || name == only || name.starts_with(only + "-");
}

// Null if a baseline was too fast for the clock, which measured 0: JSON has no infinity.
boost::json::value ratio_of(const Measurement& measurement) {
  std::vector<double> ratios;
  for (size_t i = 0; i < measurement.values.size(); ++i) {
    if (measurement.baseline_values[i] <= 0) return nullptr;
    ratios.push_back(measurement.values[i] / measurement.baseline_values[i]);
  }
  return median(std::move(ratios));
}

void print_line(const Measurement& measurement) {
  std::puts(to_json(measurement).c_str());
  std::fflush(stdout);
}

Status run_benchmark(const Benchmark& benchmark, const Options& options) {
  STOKER_ASSIGN_OR_RETURN(const auto trials, benchmark.prepare(options));
  for (const Trial& trial : trials) {
    std::vector<std::vector<double>> values;
    STOKER_RETURN_IF_ERROR(measure_alternately(trial, options.runs, values));
    Measurement line{benchmark.name, trial.metric, trial.unit, values[0], {}, {}};
    if (trial.baselines.empty()) print_line(line);
    for (size_t i = 0; i < trial.baselines.size(); ++i) {
      line.baseline = trial.baselines[i].name;
      line.baseline_values = values[i + 1];
      print_line(line);
    }
  }
  return {};
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

std::string to_json(const Measurement& measurement) {
  boost::json::object line;
  line["bench"] = measurement.bench;
  line["metric"] = measurement.metric;
  line["value"] = median(measurement.values);
  line["unit"] = measurement.unit;
  if (!measurement.baseline_values.empty()) {
    line["baseline"] = measurement.baseline;
    line["baseline_value"] = median(measurement.baseline_values);
    line["ratio"] = ratio_of(measurement);
  }
  static const std::string processor = describe_processor();
  line["processor"] = processor;
  line["runs"] = measurement.values.size();
  line["spread"] = spread_of(measurement.values);
  if (!measurement.baseline_values.empty())
    line["baseline_spread"] = spread_of(measurement.baseline_values);
  return boost::json::serialize(line);
}

int run_all(const std::vector<Benchmark>& benchmarks, const Options& options) {
  bool found = false;
  bool failed = false;
  for (const Benchmark& benchmark : benchmarks) {
    if (!is_selected(benchmark.name, options.only)) continue;
    found = true;
    if (options.list) {
      std::printf("%-20s %s\n", benchmark.name.c_str(), benchmark.description.c_str());
      continue;
    }
    const Status status = run_benchmark(benchmark, options);
    if (status.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", benchmark.name.c_str(), status.to_string().c_str());
    failed = true;
  }
  if (!found)
    std::fprintf(stderr, "unknown benchmark '%s'; --list prints the names\n", options.only.c_str());
  return found && !failed ? 0 : 1;
}

}  // namespace stoker::bench
