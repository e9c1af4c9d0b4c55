// LiveSettings: the settings that were changed while a run trains. Only those with OnResume::kLive
// can change. A checkpoint contains them, so a resumed run continues with them.
//
// Threads: values; pure functions.
// Errors:  kInvalidArgument, with the key and what to do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <boost/json/fwd.hpp>

#include "shared/base/status.h"
#include "shared/config/config.h"

namespace stoker::config {

struct LiveSetting {
  std::string key;         // "optimizer.lr"
  std::string value;       // as YAML
  std::string configured;  // the value of the configuration that it replaces, as YAML

  bool operator==(const LiveSetting&) const = default;
};

// Each key once, in the order of the first change.
using LiveSettings = std::vector<LiveSetting>;

// Such settings, and the configuration in effect with them.
struct LiveConfig {
  LiveSettings live;
  Config config;
};

// The value of a setting as YAML. kInvalidArgument: no such key, with a similar one.
Result<std::string> value_of(const Config& config, std::string_view key);

// The configuration in effect.
Result<Config> with_live_settings(const Config& configured, const LiveSettings& live);

// With `value`, which is YAML, for `key`. Checks that the key can change, and that the resulting
// configuration is valid.
Result<LiveConfig> set_live(const Config& configured, LiveSettings live, const std::string& key,
                            const std::string& value);
// Without `key`. An error also if the key has no live value.
Result<LiveConfig> unset_live(const Config& configured, LiveSettings live, const std::string& key);

// A value as JSON: numbers, true, false and null as such, everything else as a text.
boost::json::value to_json_value(const std::string& yaml);

struct DroppedSetting {
  LiveSetting setting;
  std::string reason;
};
struct ResumedSettings {
  LiveSettings kept;
  std::vector<DroppedSetting> dropped;
};
// Of a checkpoint. A value is dropped if the configuration has another value than when it was set,
// or if it is not valid with this configuration.
ResumedSettings resume_live(const Config& configured, const LiveSettings& saved);

}  // namespace stoker::config
