// CommandLine: the parsed command line of stokerd. Only the syntax is validated, not the values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/app/resume_compatibility.h"
#include "daemon/parameter_server/cluster_spec.h"
#include "shared/base/status.h"
#include "shared/config/load_config.h"

namespace stoker::app {

struct CommandLine {
  std::string config;                      // --config
  std::string run_dir;                     // --run-dir; empty: run.dir of the configuration
  std::vector<std::string> overrides;      // --set
  std::string resume;                      // --resume; empty: the newest valid checkpoint
  AllowedChanges allowed;                  // --allow-…
  bool fresh = false;                      // --fresh
  bool check = false;                      // --check-config
  bool check_data = false;                 // --check-data
  parameter_server::ClusterFlags cluster;  // --ps_hosts, --worker_hosts, --job_name, --task_index
  std::string replicas;                    // --replicas; empty: not set
  std::string placement;                   // --placement; empty: not set
  std::optional<uint64_t> max_staleness;   // --max-staleness
  // Set by main() with the configuration.
  config::SettingOrigins origins;
  bool is_config_trusted = false;  // as config::OwnedConfig
};

// The command line, or the exit code if the process must exit (--help, --version or a usage error,
// which is already printed).
struct ParsedCommandLine {
  std::optional<CommandLine> command;
  ExitCode exit_code = ExitCode::kSuccess;
};

ParsedCommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace stoker::app
