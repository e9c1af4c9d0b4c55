#include "daemon/app/reload_config.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "shared/base/log.h"
#include "shared/config/live_settings.h"
#include "shared/config/load_config.h"
#include "shared/run/run_layout.h"

namespace stoker::app {
namespace {

constexpr const char* kLogLevelKey = "log.level";

std::string to_json(const std::vector<config::SettingChange>& changes, bool is_level_changed) {
  boost::json::array list;
  for (const config::SettingChange& change : changes)
    list.push_back(boost::json::object{
        {"key", change.key},
        {"previous", config::to_json_value(change.previous)},
        {"current", config::to_json_value(change.current)},
        {"effective", change.key == kLogLevelKey && is_level_changed ? "now" : "next start"}});
  return boost::json::serialize(boost::json::object{{"changes", std::move(list)}});
}

}  // namespace

Result<std::string> reload_config(const config::Config& now, const CommandLine& command,
                                  bool is_chief, Run& run, bool is_dry_run) {
  config::SettingOrigins origins;
  auto fresh = config::load_config(command.config, command.overrides, &origins);
  if (!fresh.ok()) {
    if (!is_dry_run)
      log_error("configuration reload rejected", {{"error", fresh.status().message()}});
    return fresh.status();
  }
  config::keep_stored_globs(*fresh, origins, run::RunLayout(now.run.dir).config_file());
  std::vector<config::SettingChange> changes = config::diff_configs(now, *fresh);
  std::erase_if(changes, [](const auto& change) { return change.key == "run.dir"; });
  const auto status = run.status();
  const auto live = std::ranges::find(status->live_settings, kLogLevelKey,
                                      &std::pair<std::string, std::string>::first);
  const bool is_live = live != status->live_settings.end();
  const bool is_level_fixed = is_live && run.is_released();
  if (is_dry_run) return to_json(changes, !is_level_fixed);
  const LogLevel level = fresh->log.level;
  if (is_live && (level == now.log.level || is_level_fixed)) {
    log_info("configuration reloaded", {{"log.level", live->second}});
  } else {
    set_log_level(LogLevel::kInfo);  // logs the next line at any configured level
    log_info("configuration reloaded", {{"log.level", config::to_string(level)}});
    set_log_level(level);
    if (is_live && is_chief)
      run.post(control::UnsetSetting{.key = kLogLevelKey},
               [level](const Result<std::string>& unset) {
                 if (unset.ok()) set_log_level(level);
               });
  }
  for (const config::SettingChange& change : changes)
    if (change.key != kLogLevelKey || is_level_fixed)
      log_warn("setting change deferred", {{"key", change.key}, {"effective", "next start"}});
  return to_json(changes, !is_level_fixed);
}

}  // namespace stoker::app
