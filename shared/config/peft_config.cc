#include "shared/config/peft_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <vector>

#include <boost/json.hpp>

#include "shared/base/file.h"
#include "shared/config/foreign_json.h"

namespace stoker::config {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxPeftConfigBytes = 1 << 20;
constexpr double kMaxRank = 1e6;

// Fields that do not change the result of a saved adapter, whatever their values.
constexpr auto kIgnoredFields = std::to_array<std::string_view>(
    {"task_type", "auto_mapping", "base_model_name_or_path", "revision", "inference_mode",
     "peft_version", "fan_in_fan_out", "runtime_config", "loftq_config", "eva_config",
     "corda_config", "lora_ga_config", "layers_pattern", "megatron_core", "qalora_group_size"});

bool has_effect(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return false;
    case json::kind::bool_:
      return value.as_bool();
    case json::kind::array:
      return !value.as_array().empty();
    case json::kind::object:
      return !value.as_object().empty();
    default:
      return true;
  }
}

// A text, or a list of texts in any order, which is sorted.
std::vector<std::string> read_names(std::string_view field, const json::value& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return {std::string(value.as_string())};
  std::set<std::string> names;
  if (!value.is_array()) reject_field(field, "must be a list of names");
  for (const json::value& name : value.as_array()) {
    if (!name.is_string()) reject_field(field, "must be a list of names");
    names.emplace(name.as_string());
  }
  return {names.begin(), names.end()};
}

// Methods that also change the pretrained weights.
void check_init(const json::value& value) {
  if (!value.is_string()) return;
  const std::string_view method = value.as_string();
  for (const std::string_view changing : {"pissa", "olora", "corda", "loftq", "lora_ga"})
    if (method.starts_with(changing))
      reject_field("init_lora_weights",
                   quoted(method) +
                       " is not supported, because it changes the pretrained weights; "
                       "convert the adapter as PEFT's save_pretrained() does");
}

void read_field(std::string_view field, const json::value& value, LoraConfig& lora) {
  if (field == "r") {
    lora.r = static_cast<int64_t>(read_real(field, value, {1, kMaxRank, true}));
    if (static_cast<double>(lora.r) != value.to_number<double>())
      reject_field(field, "must be an integer");
  } else if (field == "lora_alpha") {
    lora.lora_alpha = read_real(field, value, {0, kMaxRank});
  } else if (field == "lora_dropout") {
    lora.lora_dropout = read_real(field, value, {0, 0.99, true});
  } else if (field == "target_modules") {
    lora.target_modules = read_names(field, value);
  } else if (field == "modules_to_save") {
    lora.modules_to_save = read_names(field, value);
  } else if (field == "init_lora_weights") {
    check_init(value);
  } else if (field == "peft_type") {
    if (!value.is_string() || value.as_string() != "LORA")
      reject_field(field, "must be LORA, got " + json_text(value));
  } else if (field == "bias") {
    if (!value.is_string() || value.as_string() != "none")
      reject_field(field, "must be none; trained biases are not supported");
  } else if (std::ranges::count(kIgnoredFields, field) == 0 && has_effect(value)) {
    reject_field(field, "is not supported, got " + json_text(value));
  }
}

// For classification PEFT lists both names that its output layer may have.
void drop_other_classifier(const json::object& object, std::vector<std::string>& saved) {
  const json::value* const type = object.if_contains("task_type");
  if (type == nullptr || (*type != "SEQ_CLS" && *type != "TOKEN_CLS")) return;
  if (std::ranges::count(saved, "classifier") > 0) std::erase(saved, "score");
}

std::string names_text(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return "[" + one_line(text, 200) + "]";
}

// Sets `ours`, or if its key is set, lists the difference.
template <typename T>
void apply(const ExplicitKeys& keys, const std::string& key, const T& theirs, T& ours,
           const auto& text, std::string& differences) {
  if (!keys.contains("model.lora." + key)) {
    ours = theirs;
  } else if (ours != theirs) {
    differences += (differences.empty() ? "" : "; ") + key + " is " + text(ours) + ", but " +
                   text(theirs) + " in the file";
  }
}

// The same for names in any order; an empty list is not set.
void apply_names(const ExplicitKeys& keys, const std::string& key,
                 const std::vector<std::string>& theirs, std::vector<std::string>& ours,
                 std::string& differences) {
  const bool is_same = std::set(theirs.begin(), theirs.end()) == std::set(ours.begin(), ours.end());
  if (ours.empty() || is_same)
    ours = theirs;
  else
    apply(keys, key, theirs, ours, names_text, differences);
}

bool has_all_lora_settings(const ExplicitKeys& keys, const LoraConfig& lora) {
  return !lora.target_modules.empty() &&
         std::ranges::all_of(
             std::array{"r", "lora_alpha", "lora_dropout", "target_modules", "modules_to_save"},
             [&](const char* key) { return keys.contains(std::string("model.lora.") + key); });
}

json::array to_json_names(const std::vector<std::string>& names) {
  json::array array;
  for (const std::string& name : names) array.emplace_back(name);
  return array;
}

}  // namespace

Result<LoraConfig> parse_peft_config(std::string_view text, const std::string& path) {
  return read_foreign_json<LoraConfig>(text, path, [](const json::object& object) {
    LoraConfig lora;
    for (const char* const required : {"peft_type", "r", "lora_alpha", "target_modules"})
      if (!object.contains(required)) reject_field(required, "is missing");
    for (const auto& [field, value] : object) read_field(field, value, lora);
    drop_other_classifier(object, lora.modules_to_save);
    if (lora.target_modules.empty()) reject_field("target_modules", "is empty");
    return lora;
  });
}

std::string format_peft_config(const LoraConfig& lora, const PeftModel& model) {
  json::object object{{"peft_type", "LORA"},
                      {"base_model_name_or_path", model.base},
                      {"r", lora.r},
                      {"lora_alpha", lora.lora_alpha},
                      {"lora_dropout", lora.lora_dropout},
                      {"target_modules", to_json_names(lora.target_modules)},
                      {"fan_in_fan_out", model.fan_in_fan_out},
                      {"bias", "none"},
                      {"inference_mode", true},
                      {"task_type", nullptr},
                      {"modules_to_save", nullptr}};
  if (std::trunc(lora.lora_alpha) == lora.lora_alpha)  // an integer in PEFT
    object["lora_alpha"] = static_cast<int64_t>(lora.lora_alpha);
  if (!model.task_type.empty()) object["task_type"] = model.task_type;
  if (!lora.modules_to_save.empty())
    object["modules_to_save"] = to_json_names(lora.modules_to_save);
  return json::serialize(object) + "\n";
}

void apply_peft_config(const ExplicitKeys& keys, Config& config, ConfigErrors& errors) {
  if (!config.model.lora || !config.model.lora->path || errors.has_error_for("model.lora")) return;
  LoraConfig& ours = *config.model.lora;
  if (has_all_lora_settings(keys, ours)) return;
  const std::string file = join_path(*ours.path, kPeftConfigFile);
  const auto add_error = [&](const std::string& message) {
    errors.add(keys.location_of("model.lora.path"), "model.lora.path", message);
  };
  const auto text = read_file(file, kMaxPeftConfigBytes);
  if (!text.ok()) return add_error(text.status().message());
  const auto theirs = parse_peft_config(*text, file);
  if (!theirs.ok()) return add_error(theirs.status().message());
  std::string differences;
  const auto number = [](auto value) { return setting_text(static_cast<double>(value)); };
  apply(keys, "r", theirs->r, ours.r, number, differences);
  apply(keys, "lora_alpha", theirs->lora_alpha, ours.lora_alpha, number, differences);
  apply_names(keys, "target_modules", theirs->target_modules, ours.target_modules, differences);
  apply_names(keys, "modules_to_save", theirs->modules_to_save, ours.modules_to_save, differences);
  if (!keys.contains("model.lora.lora_dropout")) ours.lora_dropout = theirs->lora_dropout;
  if (!differences.empty())
    add_error(file + " has other settings: " + differences + "; remove these keys of model.lora");
}

}  // namespace stoker::config
