// CommandLine: the parsed command line of stoker-eval.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/run_config.h"

namespace stoker::evaluator {

struct CommandLine {
  std::string run_dir;                   // --run-dir; can be empty with --checkpoint
  bool follow = false;                   // --follow; false: --once
  uint64_t until = 0;                    // --until; 0: none
  std::vector<std::string> checkpoints;  // --checkpoint
  std::string config;                    // --config; empty: RUN/config.yaml
  std::vector<std::string> overrides;    // --set
  bool trust = false;                    // --trust
  // --generate, --prompt, --temperature, --top-k, --top-p
  std::optional<config::GenerateConfig> generate;
};

struct ParsedCommandLine {
  std::optional<CommandLine> command;
  ExitCode exit_code = ExitCode::kSuccess;
};

ParsedCommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace stoker::evaluator
