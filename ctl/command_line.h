// CommandLine: what stokerctl is asked to do, as plain words; nothing is looked up or checked
// beyond its form.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "shared/base/status.h"

namespace stoker::ctl {

enum class Action {
  kStatus,
  kWatch,
  kPause,
  kResume,
  kCheckpoint,
  kStop,
  kSet,
  kProfile,
  kInspect,
  kList,
  kVerify,
  kDiff,
  kExport,
  kClasses,
  kExplain,
  kLogs,
  kReport,
  kPlot,
};

struct CommandLine {
  Action action = Action::kStatus;
  std::string run_dir;           // --run-dir; empty: the current directory
  std::string socket;            // --socket; empty: the run directory's
  bool json = false;             // --json
  double lr = 0;                 // set lr
  std::optional<uint64_t> step;  // show-batch N
  std::string set;               // class-report --dataset; empty: the first that has classes
  std::string which =
      "latest";  // verify [STEP], class-report [STEP], export STEP, the first of diff STEP STEP
  std::string other;                   // the second
  std::string format = "safetensors";  // export --format
  std::string what = "model";          // export --include
  std::string output;                  // export --output, plot --svg, profile --output
  std::string metric;                  // plot --metric; empty: the losses
  bool all = false;                    // verify --all, diff --all
  uint64_t lines = 20;                 // logs -n
  bool follow = false;                 // logs -f
  bool evaluator = false;              // logs --evaluator
  uint64_t steps = 0;                  // profile N, inspect --steps
  std::string glob;                    // inspect GLOB
  uint64_t every = 1;                  // inspect --every
  bool parameters = false;             // inspect --parameters
  bool gradients = false;              // inspect --gradients
  bool outputs = false;                // inspect --activations
  bool histogram = false;              // inspect --histograms
  bool kernels = false;                // profile --kernels
};

// Either the command line, or the exit code of what was already answered (--help, --version, a
// mistake).
struct ParsedCommandLine {
  std::optional<CommandLine> command;
  ExitCode exit_code = ExitCode::kSuccess;
};

// Help goes to `out`, a mistake to `err` in one line.
ParsedCommandLine parse_command_line(int argc, const char* const* argv, std::ostream& out,
                                     std::ostream& err);

}  // namespace stoker::ctl
