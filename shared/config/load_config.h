// load_config: parses YAML and --set options into a validated Config, or returns all errors
// together.
//
// Errors: kInvalidArgument. The message has one line per error, "file:line:column: key: what is
//         wrong; what to do": unknown keys with a suggestion, wrong types, values out of range,
//         keys that the selected variant does not have, duplicate keys, settings that exclude each
//         other. Also: files over 1 MiB, nesting over 32, anchors and aliases, NUL bytes, invalid
//         UTF-8. kNotFound, kIoError: the file cannot be read.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/config.h"

namespace stoker::config {

// Where the value of a setting comes from; a key that is not listed has its default.
enum class SettingOrigin { kFile, kOverride };
using SettingOrigins = std::map<std::string, SettingOrigin, std::less<>>;

// `overrides`: "train.max_steps=10", applied over the file; values are YAML ("data.train.split=[0,
// 0.5]").
Result<Config> load_config(const std::string& path, const std::vector<std::string>& overrides,
                           SettingOrigins* maybe_origins = nullptr);
Result<Config> parse_config(std::string_view yaml, const std::string& name_in_messages,
                            const std::vector<std::string>& overrides,
                            SettingOrigins* maybe_origins = nullptr);

// The resolved configuration as YAML, with the keys in the order of config/stoker.yaml.
// parse_config() of the result returns an equal Config, and equal Configs have equal texts.
std::string to_yaml(const Config& config);

// SHA-256 (hex) of the settings that affect the result of training: model, task, optimizer,
// scheduler, data, seed, batch size. Paths, intervals and logging are not included.
std::string digest(const Config& config);

// Every setting that is included in digest(), as YAML: {"train.micro_batch_size", "16"}.
std::vector<std::pair<std::string, std::string>> result_affecting_settings(const Config& config);

struct Setting {
  std::string key;
  std::string value;  // as YAML
  bool is_live = false;
};

// Every setting.
std::vector<Setting> all_settings(const Config& config);

struct SettingChange {
  std::string key;       // "eval.early_stopping.patience"
  std::string previous;  // as YAML; "(unset)" if only the other configuration has the key
  std::string current;
  OnResume on_resume = OnResume::kFree;

  std::string text() const { return key + ": " + previous + " -> " + current; }
};

// Empty if both are equal. The keys of a dataset start with data.NAME.
std::vector<SettingChange> diff_configs(const Config& previous, const Config& current);

}  // namespace stoker::config
