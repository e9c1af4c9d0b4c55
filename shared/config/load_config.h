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

#include "shared/base/file.h"
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

// Keeps the files of a run that exists: where data.NAME.glob is not set, the default of an earlier
// release that `stored_path`, the configuration of the run, has. Without such a file does nothing.
void keep_stored_globs(Config& config, const SettingOrigins& origins,
                       const std::string& stored_path);
// The steps that settings in epochs were resolved to in the configuration of the run at `stored_path`, until they
// are resolved again.
void keep_stored_steps(Config& config, const std::string& stored_path);

// The resolved configuration as YAML, with the keys in the order of config/stoker.yaml.
// parse_config() of the result returns an equal Config, and equal Configs have equal texts.
std::string to_yaml(const Config& config);

// Replaces `path` atomically by to_yaml(config). Only the owner can read it if the configuration has
// secret settings; stoker-eval, which runs one of them, runs as the owner.
Status write_config(FileSystem& files, const std::string& path, const Config& config);

// SHA-256 (hex) of the settings that affect the result of training: model, task, optimizer,
// scheduler, data, seed, batch size. Paths, intervals and logging are not included.
std::string digest(const Config& config);

// Every setting that is included in digest(), as YAML: {"train.micro_batch_size", "16"}.
std::vector<std::pair<std::string, std::string>> result_affecting_settings(const Config& config);

// Instead of the value of a secret setting.
inline constexpr std::string_view kHiddenValue = "(hidden)";

// Whether the setting with this key, one above it or one in it is secret.
bool is_secret_key(std::string_view key);
// Whether an unknown key can be a misspelt one of a secret setting.
bool is_like_secret_key(std::string_view key);

// The text of a resolved configuration without the values of secret settings. Without any line if
// to_yaml() did not write it and it can have such values.
std::string hide_secrets(std::string_view yaml);

struct Setting {
  std::string key;
  std::string value;  // as YAML; also of a secret setting
  bool is_live = false;
  bool is_secret = false;

  std::string public_value() const { return is_secret ? std::string(kHiddenValue) : value; }
};

// Every setting.
std::vector<Setting> all_settings(const Config& config);

struct SettingChange {
  std::string key;       // "eval.early_stopping.patience"
  std::string previous;  // as YAML; "(unset)" if only the other configuration has the key;
  std::string current;   // kHiddenValue if it is secret
  OnResume on_resume = OnResume::kFree;

  std::string text() const { return key + ": " + previous + " -> " + current; }
};

// Empty if both are equal. The keys of a dataset start with data.NAME.
std::vector<SettingChange> diff_configs(const Config& previous, const Config& current);

}  // namespace stoker::config
