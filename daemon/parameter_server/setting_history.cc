#include "daemon/parameter_server/setting_history.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include <boost/json.hpp>

#include "daemon/train/schedule.h"
#include "shared/base/json_parser.h"
#include "shared/config/live_settings.h"

namespace stoker::parameter_server {

std::string to_json(const SettingsVersion& version) {
  boost::json::object object{{"step", version.step}, {"live", train::to_json(version.live)}};
  if (const config::SettingChange& change = version.change; !change.key.empty())
    object["change"] = {
        {"key", change.key}, {"previous", change.previous}, {"current", change.current}};
  return boost::json::serialize(object);
}

Result<SettingsVersion> parse_settings_version(const std::string& text) {
  boost::system::error_code error;
  const boost::json::value value = parse_json(text, error);
  SettingsVersion version;
  try {
    const boost::json::object& fields = value.as_object();
    version.step = fields.at("step").to_number<uint64_t>();
    STOKER_ASSIGN_OR_RETURN(version.live,
                            train::parse_live_state(std::string(fields.at("live").as_string())));
    if (const auto* const change = fields.if_contains("change")) {
      const auto text_of = [&object = change->as_object()](const char* name) {
        return std::string(object.at(name).as_string());
      };
      version.change = {
          .key = text_of("key"), .previous = text_of("previous"), .current = text_of("current")};
    }
  } catch (const std::exception& wrong) {
    return Status(StatusCode::kInternal,
                  std::string("the settings in the store of ps 0: ") + wrong.what());
  }
  return version;
}

std::string settings_key(uint64_t version) { return "live_settings/" + std::to_string(version); }

Status SettingHistory::add(const SettingsVersion& version) {
  STOKER_ASSIGN_OR_RETURN(auto changed,
                          config::with_live_settings(configured_, version.live.settings));
  entries_.push_back(
      {.step = version.step, .config = std::move(changed), .lr_scale = version.live.lr_scale});
  return {};
}

const SettingHistory::Entry& SettingHistory::at(uint64_t step) const {
  return *std::prev(std::ranges::upper_bound(entries_, step, {}, &Entry::step));
}

double SettingHistory::learning_rate(uint64_t step) const {
  const Entry& entry = at(step);
  const config::Config& config = entry.config;
  return entry.lr_scale * train::learning_rate(config.scheduler, config.optimizer.lr(), step,
                                               config.train.max_steps);
}

bool SettingHistory::is_recorded(uint64_t step) const {
  const config::Config& config = at(step - 1).config;
  return step == config.train.max_steps || step % config.metrics.log_every_steps == 0;
}

}  // namespace stoker::parameter_server
