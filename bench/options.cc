#include "bench/options.h"

#include <CLI/CLI.hpp>

namespace stoker::bench {

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  CLI::App app(
      "Measures parts of stoker alternately with simple baselines. Prints one JSON object per "
      "line; value and baseline_value are medians, spread and baseline_spread are [lowest, "
      "highest], ratio "
      "is the median of value / baseline_value over the runs.");
  app.add_flag("--list", options.list,
               "Print the names and descriptions of the benchmarks and exit");
  app.add_option("--only", options.only,
                 "Run this benchmark, or all whose name starts with this word: step");
  app.add_option("--runs", options.runs, "Number of runs per trial")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds, "Duration of a run, for trials of variable length")
      ->check(CLI::Range(0.001, 3600.0));
  app.add_option("--dir", options.dir, "Directory for files, on the disk to measure")
      ->check(CLI::ExistingDirectory);
  app.add_option(
         "--baselines", options.baselines,
         "Directory created by scripts/bench_baselines.sh: feed-images and queue also measure "
         "those libraries")
      ->check(CLI::ExistingDirectory);
  app.add_flag("--quick", options.quick,
               "Use tiny sizes and one short run, to test that everything runs");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error);
    return std::nullopt;
  }
  if (options.quick) {
    options.runs = 1;
    options.seconds = 0.02;
  }
  return options;
}

}  // namespace stoker::bench
