#include "bench/options.h"

#include <CLI/CLI.hpp>

namespace stoker::bench {

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  CLI::App app(
      "Measures parts of stoker against simple peers that run in turn with them. One JSON object a "
      "line; value and peer_value are medians, spread and peer_spread are [lowest, highest], ratio "
      "is the median of value / peer_value of each run.");
  app.add_flag("--list", options.list, "Print the names and what they measure, and end");
  app.add_option("--only", options.only, "Run this one, or all that begin with this word: step");
  app.add_option("--runs", options.runs, "Runs of each")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds, "Length of a run, where it is free")
      ->check(CLI::Range(0.001, 3600.0));
  app.add_option("--dir", options.dir, "Folder for files, on the disk to measure")
      ->check(CLI::ExistingDirectory);
  app.add_option(
         "--peers", options.baselines,
         "Folder that scripts/bench_baselines.sh made: feed-images runs beside those libraries")
      ->check(CLI::ExistingDirectory);
  app.add_flag("--quick", options.quick, "Tiny sizes and one short run: a test that all runs");
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
