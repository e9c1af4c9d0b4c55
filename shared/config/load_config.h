// load_config: YAML and --set flags to a checked Config, or every mistake at once.
//
// Errors: kInvalidArgument. The message holds one line per mistake, each "file:line:column: what;
//         what to do", among them unknown keys with "did you mean", wrong types, values out of
//         range, keys that the chosen kind does not read, duplicate keys. Also: files over 1 MiB,
//         nesting over 32, anchors and aliases, NUL bytes, invalid UTF-8. kNotFound, kIoError: the
//         file cannot be read.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/config.h"

namespace stoker::config {

// `overrides`: "train.steps=10", applied over the file; values are YAML ("data.train.split=[0,
// 0.5]").
Result<Config> load_config(const std::string& path, const std::vector<std::string>& overrides);
Result<Config> parse_config(std::string_view yaml, const std::string& name_in_messages,
                            const std::vector<std::string>& overrides);

// The whole resolved configuration as YAML, keys in the order of config/stoker.yaml. parse_config()
// of it gives the same Config; equal Configs give equal bytes.
std::string to_yaml(const Config& config);

// SHA-256 (hex) over the settings that decide the result of training: model, task, optimizer,
// schedule, data, seed, batch. Not over paths, intervals, logging.
std::string digest(const Config& config);

// Each setting that has a part in digest(), as YAML: {"train.batch", "16"}.
std::vector<std::pair<std::string, std::string>> deciding_settings(const Config& config);

// What differs, a line each: "train.batch: 16 -> 32". Empty when both are equal.
std::vector<std::string> differences(const Config& before, const Config& after);

}  // namespace stoker::config
