#include "daemon/train/setting_update.h"

#include <cstdint>
#include <utility>
#include <variant>

#include <boost/json.hpp>

#include "shared/base/log.h"

namespace stoker::train {
namespace {

Result<config::LiveConfig> change_live(const config::Config& configured,
                                       const config::LiveSettings& live,
                                       const control::Command& command) {
  if (const auto* const set = std::get_if<control::SetSetting>(&command))
    return config::set_live(configured, live, set->key, set->value);
  return config::unset_live(configured, live, std::get<control::UnsetSetting>(command).key);
}

}  // namespace

Result<SettingUpdate> SettingUpdate::make(const config::Config& configured,
                                          const config::Config& config, const TrainingState& state,
                                          const control::Command& command) {
  const std::string& key = *control::changed_setting(command);
  SettingUpdate update;
  STOKER_ASSIGN_OR_RETURN(update.changed_, change_live(configured, state.settings, command));
  const config::Config& changed = update.changed_.config;
  // Another key may change after the last step too: the run reduces its learning rate there, for a run that is extended.
  if (const uint64_t max_steps = changed.train.max_steps;
      max_steps <= state.step && max_steps != config.train.max_steps)
    return Status(StatusCode::kInvalidArgument,
                  key + ": " + std::to_string(max_steps) + " is not above the current step " +
                      std::to_string(state.step) + "; `stop` ends the run");
  update.change_ = {.key = key,
                    .previous = *config::value_of(config, key),
                    .current = *config::value_of(changed, key)};
  update.warnings_ = config::new_config_warnings(config, changed);
  update.lr_ = learning_rate(changed, state);
  update.is_dry_run_ = control::is_dry_run(command);
  return update;
}

boost::json::object SettingUpdate::reply() const {
  boost::json::object reply{
      {"key", change_.key}, {"value", config::to_json_value(change_.current)}, {"lr", lr_}};
  if (is_dry_run_) reply["dry_run"] = true;
  if (warnings_.empty()) return reply;
  boost::json::array texts;
  for (const config::ConfigWarning& warning : warnings_) texts.emplace_back(warning.text());
  reply["warnings"] = std::move(texts);
  return reply;
}

void SettingUpdate::apply(config::Config& config, TrainingState& state) {
  state.settings = std::move(changed_.live);
  config = std::move(changed_.config);
  log_info("live setting changed", {{"step", state.step},
                                    {"key", change_.key},
                                    {"previous", change_.previous},
                                    {"current", change_.current},
                                    {"lr", lr_}});
  for (const config::ConfigWarning& warning : warnings_)
    log_warn("settings contradictory", {{"key", warning.key}, {"reason", warning.message}});
}

}  // namespace stoker::train
