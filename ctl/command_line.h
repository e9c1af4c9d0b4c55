// CommandLine: the parsed command line of stokerctl. Only the syntax is checked; nothing is looked
// up.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "ctl/checkpoint_export.h"
#include "shared/base/status.h"
#include "shared/control/command.h"

namespace stoker::ctl {

enum class Action {
  kStatus,
  kWatch,
  kTop,
  kThreads,
  kSettings,
  kCommand,  // sent to stokerd: CommandLine::request
  kEvents,
  kReload,
  kEvaluate,
  kList,
  kVerify,
  kDiff,
  kExport,
  kClassReport,
  kShowBatch,
  kLogs,
  kReport,
  kPlot,
  kRuns,
  kCandidates,  // CommandLine::candidates
  kInstallService,
};

struct CommandLine {
  Action action = Action::kStatus;
  std::string run_dir;              // --run-dir; empty: the current directory
  std::string socket;               // --socket; empty: the socket of the run directory
  bool json = false;                // --json
  control::Command request;         // command to send to stokerd
  control::GetSettings settings;    // get [KEY]
  control::Subscribe subscription;  // events [PATTERN]
  std::optional<uint64_t> step;     // show-batch N
  std::string dataset;              // class-report --dataset; empty: first with per-class metrics
  std::string selector =
      "latest";  // verify [STEP], class-report [STEP], export STEP, evaluate STEP, first STEP of diff
  std::string second_selector;           // the second STEP of diff
  std::optional<ExportFormat> format;    // export --format
  bool merge = false;                    // export --merge
  std::optional<ExportContent> content;  // export --include; not given: default_content()
  std::string output;                    // --output of export, plot, profile and install-service
  std::string html;                      // report --html
  std::vector<std::string> runs;  // report RUN…, plot RUN…: run directories; empty: --run-dir
  std::string directory = ".";    // runs DIR
  std::string metric;             // plot --metric; empty: the losses
  std::string candidates;         // of a completion: "steps", "keys", "live-keys", "metrics"
  bool all = false;               // verify --all, diff --all, logs --all
  uint64_t lines = 20;            // logs -n
  bool follow = false;            // logs -f
  bool wait = false;              // evaluate --wait
  bool dry_run = false;           // evaluate --dry-run, reload --dry-run, export --dry-run
  bool evaluator = false;         // logs --evaluator
  std::optional<int> rank;        // logs --rank
  bool user_units = false;        // install-service --user
  std::string service_user = "stoker";  // install-service --service-user
  std::string invoked_as;               // argv[0]
};

// Either the command line, or the exit code if parsing already handled it (--help, --version, a
// usage error).
struct ParsedCommandLine {
  std::optional<CommandLine> command;
  ExitCode exit_code = ExitCode::kSuccess;
};

// Writes help to `out` and a usage error as one line to `err`.
ParsedCommandLine parse_command_line(int argc, const char* const* argv, std::ostream& out,
                                     std::ostream& err);

}  // namespace stoker::ctl
