#include "daemon/app/reload_config.h"

#include <string>

#include "shared/base/log.h"
#include "shared/config/load_config.h"

namespace stoker::app {

void reload_config(const config::Config& now, const CommandLine& command) {
  const auto fresh = config::load_config(command.config, command.overrides);
  if (!fresh.ok()) {
    log_error("configuration reload rejected", {{"error", fresh.status().message()}});
    return;
  }
  set_log_level(LogLevel::kInfo);  // logs the next line at any configured level
  log_info("configuration reloaded", {{"log.level", config::to_string(fresh->log.level)}});
  set_log_level(fresh->log.level);
  for (const config::SettingChange& change : config::diff_configs(now, *fresh))
    if (change.on_resume != config::OnResume::kLive && change.key != "run.dir")
      log_warn("setting change deferred", {{"key", change.key}, {"effective", "next start"}});
}

}  // namespace stoker::app
