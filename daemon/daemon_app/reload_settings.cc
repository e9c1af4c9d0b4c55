#include "daemon/daemon_app/reload_settings.h"

#include <string>

#include "shared/base/log.h"
#include "shared/config/load_config.h"

namespace stoker::daemon_app {

void reload_settings(const config::Config& now, const CommandLine& command) {
  const auto fresh = config::load_config(command.config, command.overrides);
  if (!fresh.ok()) {
    log_error("configuration reload rejected", {{"error", fresh.status().message()}});
    return;
  }
  set_log_level(LogLevel::kInfo);  // this line is seen whatever the levels are
  log_info("configuration reloaded", {{"log.level", fresh->log.level}});
  set_log_level(log_level_of(fresh->log.level));
  for (const std::string& difference : config::differences(now, *fresh))
    if (!difference.starts_with("log.level:") && !difference.starts_with("run.dir:"))
      log_warn("setting change deferred",
               {{"key", difference.substr(0, difference.find(": "))}, {"effective", "next start"}});
}

}  // namespace stoker::daemon_app
