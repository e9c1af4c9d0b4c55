#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "daemon/app/check_data.h"
#include "daemon/app/cluster_start.h"
#include "daemon/app/command_line.h"
#include "daemon/app/daemon_app.h"
#include "daemon/app/resume_compatibility.h"
#include "daemon/group/launch_environment.h"
#include "daemon/parameter_server/cluster_spec.h"
#include "daemon/train/device.h"
#include "shared/base/clock.h"
#include "shared/base/coordinator.h"
#include "shared/base/descriptor_limit.h"
#include "shared/base/utf8.h"
#include "shared/config/config_warnings.h"
#include "shared/config/epochs.h"
#include "shared/config/owned_config.h"
#include "shared/config/run_metrics.h"
#include "shared/model/host_allocator.h"
#include "shared/run/run_layout.h"

namespace stoker {
namespace {

ExitCode run_daemon(int argc, char** argv) {
  ::umask(::umask(0) | 0027);  // files for owner and group only, as in the unit
  raise_descriptor_limit();
  model::install_host_allocator();
  auto parsed = app::parse_command_line(argc, argv);  // prints help and usage errors
  if (!parsed.command) return parsed.exit_code;
  // Returns the validated configuration, or all its errors.
  auto file = config::load_owned_config(parsed.command->config, parsed.command->overrides,
                                        &parsed.command->origins);
  if (!file.ok()) {
    // Configuration errors already have one line each with their location, as compiler errors do.
    const bool has_places = file.status().code() == StatusCode::kInvalidArgument;
    const bool is_missing = file.status().code() == StatusCode::kNotFound;
    std::cerr << (has_places ? "" : "stokerd: ")
              << printable_lines(file.status().message(), has_places ? "" : "  ")
              << (is_missing ? "; --config is the path of a configuration: see stoker.yaml(5), and "
                               "the examples in share/stoker/config"
                             : "")
              << "\n";
    return ExitCode::kConfiguration;
  }
  config::Config& config = file->config;
  parsed.command->is_config_trusted = file->is_trusted();
  if (const Status device = train::check_supported_by_build(config.train.device); !device.ok()) {
    std::cerr << "stokerd: " << printable_lines(device.message(), "  ") << "\n";
    return ExitCode::kConfiguration;
  }
  if (const auto metrics = config::resolve_metrics(config); !metrics.ok()) {
    std::cerr << printable(parsed.command->config) << ": "
              << printable_lines(metrics.status().message(), "  ") << "\n";
    return ExitCode::kConfiguration;
  }
  if (!parsed.command->run_dir.empty()) config.run.dir = parsed.command->run_dir;
  if (config.run.dir != valid_utf8(config.run.dir)) {
    std::cerr << "stokerd: run.dir: " << quote_for_message(config.run.dir)
              << " is not UTF-8, as the records of a run are; rename the directory\n";
    return ExitCode::kUsage;
  }
  if (!parsed.command->fresh) {
    const std::string stored = run::RunLayout(config.run.dir).config_file();
    config::keep_stored_globs(config, parsed.command->origins, stored);
    config::keep_stored_steps(config, stored);
  }
  const auto print_warnings = [&] {
    for (const config::ConfigWarning& warning : config::find_config_warnings(config))
      std::cerr << printable(parsed.command->config + ": warning: " + warning.text()) << "\n";
  };
  if (parsed.command->check) {
    if (const Status cluster = app::check_configured_cluster(config, *parsed.command);
        !cluster.ok()) {
      std::cerr << printable(parsed.command->config) << ": "
                << printable_lines(cluster.message(), "  ") << "\n";
      return ExitCode::kConfiguration;
    }
    if (!parsed.command->check_data) print_warnings();
    if (!parsed.command->fresh)
      if (const Status resumed = app::check_resumed_config(run::RunLayout(config.run.dir), config,
                                                           parsed.command->allowed);
          !resumed.ok())
        std::cerr << printable(parsed.command->config)
                  << ": warning: " << printable_lines(resumed.message(), "  ") << "\n";
    if (!parsed.command->check_data) {
      if (config::has_unresolved_epochs(config))
        std::cerr << printable(parsed.command->config)
                  << ": note: --check-data also prints the steps that epochs are\n";
      std::cout << config::to_yaml(config) << std::flush;
      return ExitCode::kSuccess;
    }
  }
  if (parsed.command->check_data) {
    // With --check-config, standard output is a configuration.
    const ExitCode checked =
        app::check_data(config, system_clock(), parsed.command->check ? std::cerr : std::cout);
    if (parsed.command->check) {
      print_warnings();  // with the steps that epochs are
      std::cout << config::to_yaml(config) << std::flush;
    }
    return checked;
  }
  auto launch =
      group::parse_launch_environment(group::read_environment_variables(), config.run.dir);
  if (!launch.ok()) {
    std::cerr << "stokerd: " << printable_lines(launch.status().message(), "  ") << "\n";
    return ExitCode::kUsage;
  }
  // Platforms set it for all kinds of runs.
  const char* tf_config = std::getenv("TF_CONFIG");
  if (tf_config == nullptr) tf_config = "";
  const Status tf_config_checked = parameter_server::check_tf_config(tf_config);
  if (launch->world_size > 1) tf_config = "";
  Result<std::optional<app::ClusterLaunch>> cluster =
      app::make_cluster_launch(*parsed.command, tf_config, config.cluster);
  if (cluster.ok() && !tf_config_checked.ok()) cluster = tf_config_checked;
  const bool has_cluster = !config.cluster.ps.empty() || (cluster.ok() && *cluster);
  if (has_cluster && launch->world_size > 1)
    cluster = Status(StatusCode::kInvalidArgument,
                     "parameter servers: cannot be combined with a launcher of ranks, " +
                         std::string(group::to_string(launch->launcher)));
  if (!cluster.ok()) {
    std::cerr << "stokerd: " << printable_lines(cluster.status().message(), "  ") << "\n";
    return ExitCode::kUsage;
  }
  if (*cluster) launch = app::rank_of((*cluster)->task, *launch);
  return app::DaemonApp(config, *parsed.command, system_clock(), *std::move(launch),
                        *std::move(cluster))
      .run();
}

}  // namespace
}  // namespace stoker

// Without the destructors of LibTorch's globals, which take 0.1 s and free what the kernel frees.
int main(int argc, char** argv) {
  stoker::ExitCode code = stoker::ExitCode::kInternal;
  const stoker::Status thrown = stoker::catch_exceptions([&]() -> stoker::Status {
    code = stoker::run_daemon(argc, argv);
    return {};
  });
  if (!thrown.ok()) {
    std::cerr << "stokerd: " << stoker::printable_lines(thrown.message(), "  ") << "\n";
    code = stoker::exit_code_for(thrown);
  }
  std::fflush(nullptr);
  std::quick_exit(static_cast<int>(code));
}
