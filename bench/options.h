// Options: what stoker-bench is told on its command line.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace stoker::bench {

struct Options {
  bool list = false;
  std::string only;  // a name, or the first word of several; empty: all
  int runs = 5;
  double seconds = 1.0;   // of each run whose length is free
  std::string dir;        // where disk benches write; empty: $TMPDIR, or /tmp
  std::string baselines;  // folder that scripts/bench_baselines.sh made; empty: none of those
  bool quick = false;     // tiny sizes: shows that everything runs, measures nothing

  std::chrono::nanoseconds run_time() const {
    return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
  }
};

// Nothing when the program is to end with `exit_code` (usage, --help).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace stoker::bench
