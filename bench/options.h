// Options: command line options of stoker-bench.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace stoker::bench {

struct Options {
  bool list = false;
  std::string only;  // a name, or the first word of several names; empty: all
  int runs = 5;
  double seconds = 1.0;   // per run, if its length is variable
  std::string dir;        // for disk benchmarks; empty: $TMPDIR or /tmp
  std::string baselines;  // folder created by scripts/bench_baselines.sh; empty: no libraries
  bool quick = false;     // tiny sizes: checks that everything runs, measures nothing

  std::chrono::nanoseconds run_time() const {
    return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
  }
};

// Empty if the program should exit with `exit_code` (usage error, --help).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace stoker::bench
