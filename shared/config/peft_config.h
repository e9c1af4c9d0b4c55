// peft_config: the settings of an adapter in adapter_config.json of a PEFT folder.
//
// Threads:  pure functions, except for their output arguments.
// Blocking: apply_peft_config() reads the file.
// Errors:   kInvalidArgument: as foreign_json.h; also a peft_type, or a field that changes the result,
//           that stoker does not support; kNotFound, kIoError.
#pragma once

#include <string>
#include <string_view>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/config/config_errors.h"

namespace stoker::config {

inline constexpr char kPeftConfigFile[] = "adapter_config.json";

// Without LoraConfig::path. `path` is used in messages.
Result<LoraConfig> parse_peft_config(std::string_view json, const std::string& path);

// The text of adapter_config.json. `lora.target_modules` and `modules_to_save` have the names of the
// file's model. `base` is base_model_name_or_path.
// `fan_in_fan_out`: the weights are stored as [in_features, out_features], as in GPT-2.
struct PeftModel {
  std::string base;
  std::string task_type;  // "CAUSAL_LM"; empty: none
  bool fan_in_fan_out = false;
};
std::string format_peft_config(const LoraConfig& lora, const PeftModel& model);

// If model.lora.path is set: sets the settings of model.lora that are not in `keys` to those of
// adapter_config.json, and reports those that differ. lora_dropout may differ. Reads nothing if the
// configuration has all of them, as that of a run.
void apply_peft_config(const ExplicitKeys& keys, Config& config, ConfigErrors& errors);

}  // namespace stoker::config
