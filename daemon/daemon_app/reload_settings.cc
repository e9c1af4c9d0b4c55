#include "daemon/daemon_app/reload_settings.h"

#include <string>

#include "shared/base/log.h"
#include "shared/config/load_config.h"

namespace stoker::daemon_app {

void reload_settings(const config::Config& now, const CommandLine& command) {
  const auto fresh = config::load_config(command.config, command.overrides);
  if (!fresh.ok()) {
    log_error("reload refused",
              {{"reason", fresh.status().message()}, {"kept", "the settings before"}});
    return;
  }
  set_log_level(LogLevel::kInfo);  // this line is seen whatever the levels are
  log_info("reloaded", {{"log.level", fresh->log.level}});
  set_log_level(log_level_of(fresh->log.level));
  for (const std::string& difference : config::differences(now, *fresh))
    if (!difference.starts_with("log.level:") && !difference.starts_with("run.dir:"))
      log_warn("not changed while running", {{"key", difference}, {"takes_effect", "next start"}});
}

}  // namespace stoker::daemon_app
