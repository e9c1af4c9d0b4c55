#include <iostream>

#include "daemon/daemon_app/command_line.h"
#include "daemon/daemon_app/daemon_app.h"
#include "shared/base/clock.h"
#include "shared/config/load_config.h"
#include "shared/model/host_blocks.h"

int main(int argc, char** argv) {
  using namespace stoker;
  model::keep_host_memory();
  const auto parsed =
      daemon_app::parse_command_line(argc, argv);  // answers --help and mistakes itself
  if (!parsed.command) return static_cast<int>(parsed.exit_code);
  auto config = config::load_config(
      parsed.command->config, parsed.command->overrides);  // structs, or every mistake at once
  if (!config.ok()) {
    // Mistakes come a line each with their place, as compilers give them; all else is one line of ours.
    const bool has_places = config.status().code() == Code::kInvalidArgument;
    std::cerr << (has_places ? "" : "stokerd: ") << config.status().message() << "\n";
    return static_cast<int>(ExitCode::kConfiguration);
  }
  if (!parsed.command->run_dir.empty()) config->run.dir = parsed.command->run_dir;
  if (parsed.command->check) {
    std::cout << config::to_yaml(*config);
    return static_cast<int>(ExitCode::kDone);
  }
  return static_cast<int>(daemon_app::DaemonApp(*config, *parsed.command, system_clock()).run());
}
