#include "shared/config/live_settings.h"

#include <algorithm>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"
#include "shared/config/config_errors.h"
#include "shared/config/epochs.h"
#include "shared/config/load_config.h"

namespace stoker::config {
namespace {

constexpr std::string_view kName = "configuration";

Status invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

const Setting* find(const std::vector<Setting>& settings, std::string_view key) {
  const auto found = std::ranges::find(settings, key, &Setting::key);
  return found == settings.end() ? nullptr : &*found;
}

std::string live_keys(const std::vector<Setting>& settings) {
  std::string keys;
  for (const Setting& setting : settings)
    if (setting.is_live) keys += (keys.empty() ? "" : ", ") + setting.key;
  return keys;
}

Status unknown_key(std::string_view key, const std::vector<Setting>& settings) {
  std::vector<std::string> keys;
  std::string same_name;  // of another section: lr of optimizer.lr
  for (const Setting& setting : settings) {
    keys.push_back(setting.key);
    if (setting.is_live && setting.key.ends_with("." + std::string(key))) same_name = setting.key;
  }
  std::string hint =
      same_name.empty() ? did_you_mean(key, keys) : "; did you mean " + quoted(same_name) + "?";
  if (hint.empty()) hint = "; those that can change: " + live_keys(settings);
  return invalid("unknown setting " + quoted(key) + hint);
}

Status check_can_change(const Config& config, std::string_view key) {
  const std::vector<Setting> settings = all_settings(config);
  const Setting* const setting = find(settings, key);
  if (setting == nullptr) return unknown_key(key, settings);
  if (setting->is_live) return {};
  return invalid(setting->key +
                 " cannot change during the run; those that can: " + live_keys(settings));
}

// One line, without the locations in the generated text.
Status without_locations(const Status& status) {
  std::string text;
  const std::string& lines = status.message();
  for (size_t at = 0; at <= lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    std::string_view line = std::string_view(lines).substr(at, end - at);
    constexpr std::string_view kFlag = "--set ";
    if (line.starts_with(kFlag)) {
      line.remove_prefix(kFlag.size());
    } else if (const size_t location = line.find(": ");
               line.starts_with(kName) && location != std::string_view::npos) {
      line.remove_prefix(location + 2);
    }
    text += (text.empty() ? "" : "; ") + std::string(line);
    at = end + 1;
  }
  return {status.code(), text};
}

}  // namespace

Result<std::string> value_of(const Config& config, std::string_view key) {
  const std::vector<Setting> settings = all_settings(config);
  const Setting* const setting = find(settings, key);
  return setting == nullptr ? Result<std::string>(unknown_key(key, settings)) : setting->value;
}

Result<Config> with_live_settings(const Config& configured, const LiveSettings& live) {
  if (live.empty()) return configured;
  std::vector<std::string> overrides;
  for (const LiveSetting& setting : live) overrides.push_back(setting.key + '=' + setting.value);
  auto config = parse_config(to_yaml(configured), std::string(kName), overrides);
  if (!config.ok()) return without_locations(config.status());
  if (configured.epoch_length) resolve_epochs(*config, *configured.epoch_length);
  return config;
}

Result<LiveConfig> set_live(const Config& configured, LiveSettings live, const std::string& key,
                            const std::string& value) {
  STOKER_RETURN_IF_ERROR(check_can_change(configured, key));
  // Two forms of one setting; the later one applies.
  constexpr std::string_view kForms[] = {"train.max_steps", "train.max_epochs"};
  if (std::ranges::count(kForms, key) > 0)
    std::erase_if(live, [&](const LiveSetting& each) {
      return each.key != key && std::ranges::count(kForms, each.key) > 0;
    });
  auto setting = std::ranges::find(live, key, &LiveSetting::key);
  if (setting == live.end())
    setting = live.insert(live.end(), {.key = key, .value = {}, .configured = {}});
  setting->value = value;
  STOKER_ASSIGN_OR_RETURN(setting->configured, value_of(configured, key));
  STOKER_ASSIGN_OR_RETURN(Config config, with_live_settings(configured, live));
  STOKER_ASSIGN_OR_RETURN(setting->value, value_of(config, key));  // in its usual form
  return LiveConfig{std::move(live), std::move(config)};
}

Result<LiveConfig> unset_live(const Config& configured, LiveSettings live, const std::string& key) {
  STOKER_RETURN_IF_ERROR(check_can_change(configured, key));
  if (std::erase_if(live, [&key](const LiveSetting& each) { return each.key == key; }) == 0)
    return invalid(key + " has the value of the configuration; nothing to restore");
  STOKER_ASSIGN_OR_RETURN(Config config, with_live_settings(configured, live));
  return LiveConfig{std::move(live), std::move(config)};
}

boost::json::value to_json_value(const std::string& yaml) {
  boost::system::error_code error;
  const boost::json::value value = parse_json(yaml, error);
  const bool is_json = !error && value.is_primitive() && !value.is_string();
  return is_json ? value : boost::json::value(valid_utf8(yaml));
}

namespace {

// Empty: the configuration still has the value that the setting replaces.
std::string outdated_because(const Config& configured, const LiveSetting& setting) {
  const auto now = value_of(configured, setting.key);
  if (!now.ok()) return "the configuration has no such setting";
  if (*now == setting.configured) return {};
  return "the configuration has another value than when it was set: " + setting.configured +
         " -> " + *now;
}

}  // namespace

ResumedSettings resume_live(const Config& configured, const LiveSettings& saved) {
  ResumedSettings resumed;
  LiveSettings current;
  for (const LiveSetting& setting : saved) {
    std::string reason = outdated_because(configured, setting);
    if (reason.empty())
      current.push_back(setting);
    else
      resumed.dropped.push_back({setting, std::move(reason)});
  }
  // Together, because one can require another.
  if (with_live_settings(configured, current).ok()) {
    resumed.kept = std::move(current);
    return resumed;
  }
  for (const LiveSetting& setting : current) {
    const auto set = set_live(configured, resumed.kept, setting.key, setting.value);
    if (set.ok())
      resumed.kept = set->live;
    else
      resumed.dropped.push_back({setting, set.status().message()});
  }
  return resumed;
}

}  // namespace stoker::config
