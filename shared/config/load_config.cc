#include "shared/config/load_config.h"

#include <algorithm>
#include <utility>

#include "shared/base/file.h"
#include "shared/config/config_errors.h"
#include "shared/config/epochs.h"
#include "shared/config/former_defaults.h"
#include "shared/config/huggingface_config.h"
#include "shared/config/owned_config.h"
#include "shared/config/peft_config.h"
#include "shared/config/reader.h"
#include "shared/config/validation.h"
#include "shared/config/yaml_value.h"

namespace stoker::config {
namespace {

// ---- Overrides: --set KEY=VALUE

constexpr size_t kMaxFlagBytes = size_t{64} << 10;

// {"train", "max_steps"}. Empty if any part is empty: "train..max_steps".
std::vector<std::string> split_key(std::string_view key) {
  std::vector<std::string> parts;
  for (size_t from = 0; from <= key.size();) {
    const size_t dot = std::min(key.find('.', from), key.size());
    if (dot == from) return {};
    parts.emplace_back(key.substr(from, dot - from));
    from = dot + 1;
  }
  return parts;
}

void remove(Value& map, const std::string& key) {
  std::erase_if(map.entries, [&](const Entry& entry) { return entry.key == key; });
}

// The map at `key` in `map`, created if it does not exist. The location of the key is set to the
// flag, so that a message names the option that set it.
Value& map_at(Value& map, const std::string& key, const SourceLocation& flag) {
  Value* found = map.find(key);
  if (found == nullptr) {
    map.entries.push_back({key, flag, {}});
    found = &map.entries.back().value;
  }
  if (found->type != Value::Type::kMap) *found = {.type = Value::Type::kMap, .location = flag};
  return *found;
}

void put(Value& root, const std::vector<std::string>& parts, Value value,
         const SourceLocation& flag) {
  Value* map = &root;
  if (map->type != Value::Type::kMap) *map = {.type = Value::Type::kMap, .location = flag};
  for (size_t i = 0; i + 1 < parts.size(); ++i) map = &map_at(*map, parts[i], flag);
  remove(*map, parts.back());
  map->entries.push_back({parts.back(), flag, std::move(value)});
}

// The set of valid keys does not depend on the file, except for the names of datasets.
bool is_unknown_dataset(Value& root, const std::vector<std::string>& parts) {
  if (parts.size() != 2 || parts[0] != "data") return false;
  Value* const data = root.find("data");
  return data == nullptr || data->find(parts[1]) == nullptr;
}

// Sets each option's value at its key in `root`, in order, so that the last option for a key wins.
// VALUE is YAML and replaces the complete previous value. KEY= stores a kRemoved value: the reader
// still checks the key, and the default applies again.
void apply_overrides(const std::vector<std::string>& flags, Value& root, ConfigErrors& errors) {
  for (size_t i = 0; i < flags.size(); ++i) {
    const SourceLocation location{.flag = static_cast<int>(i)};
    const std::string_view flag = flags[i];
    const size_t equals = flag.find('=');
    if (equals == std::string_view::npos) {
      errors.add(location, "", "has no '='; write KEY=VALUE, for example train.max_steps=1000");
      continue;
    }
    const std::string_view key = flag.substr(0, equals);
    const auto parts = split_key(key);
    if (parts.empty() || parts.size() > kMaxDepth) {
      errors.add(location, key, "is not a key; write KEY=VALUE, for example train.max_steps=1000");
      continue;
    }
    if (flag.size() > kMaxFlagBytes) {
      errors.add(location, key, "is longer than 64 KiB; put it into the file");
      continue;
    }
    const size_t before = errors.count();
    Value value = parse_yaml(flag.substr(equals + 1), location.flag, key, errors);
    if (errors.count() != before) continue;
    if (equals + 1 == flag.size()) value.type = Value::Type::kRemoved;
    if (value.type == Value::Type::kRemoved && is_unknown_dataset(root, parts))
      errors.add(location, key, "is not in the configuration; nothing to remove");
    put(root, parts, std::move(value), location);
  }
}

SettingOrigins origins_of(const Config& config, const ExplicitKeys& keys) {
  SettingOrigins origins;
  for (const Setting& setting : all_settings(config)) {
    if (!keys.contains(setting.key)) continue;
    const bool is_override = keys.location_of(setting.key).flag >= 0;
    origins[setting.key] = is_override ? SettingOrigin::kOverride : SettingOrigin::kFile;
  }
  return origins;
}

}  // namespace

Result<Config> load_config(const std::string& path, const std::vector<std::string>& overrides,
                           SettingOrigins* maybe_origins) {
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxConfigBytes));
  return parse_config(text, path, overrides, maybe_origins);
}

Result<Config> parse_config(std::string_view yaml, const std::string& name_in_messages,
                            const std::vector<std::string>& overrides,
                            SettingOrigins* maybe_origins) {
  ConfigErrors errors(name_in_messages, overrides);
  if (yaml.size() > kMaxConfigBytes) {
    errors.add({}, "", "is larger than 1 MiB, the limit of a configuration");
    return errors.status();
  }
  Value root = parse_yaml(yaml, -1, "", errors);
  // An incomplete file would cause consequential errors.
  if (!errors.empty()) return errors.status();
  apply_overrides(overrides, root, errors);
  Config config;
  const ExplicitKeys keys = read_settings(root, config, errors);
  join_max_epochs(keys, config, errors);
  apply_default_vocabulary(keys, config);
  apply_huggingface_config(keys, config, errors);
  apply_peft_config(keys, config, errors);
  apply_derived_defaults(keys, config);
  validate_config(config, keys, errors);
  if (!errors.empty()) return errors.status();
  if (maybe_origins != nullptr) *maybe_origins = origins_of(config, keys);
  return config;
}

void keep_stored_globs(Config& config, const SettingOrigins& origins,
                       const std::string& stored_path) {
  const auto stored = load_config(stored_path, {});
  if (!stored.ok()) return;  // no run, or one that says so later
  for (auto& [name, dataset] : config.data) {
    const auto before = stored->data.find(name);
    if (origins.contains("data." + name + ".glob") || before == stored->data.end()) continue;
    if (before->second.format() != dataset.format() || before->second.glob() != kFormerDefaultGlob)
      continue;
    std::visit(
        [&](auto& format) {
          if constexpr (requires { format.glob; }) format.glob = kFormerDefaultGlob;
        },
        dataset.source);
  }
}

void keep_stored_steps(Config& config, const std::string& stored_path) {
  if (config.epochs.empty()) return;
  if (const auto stored = load_config(stored_path, {}); stored.ok())
    keep_resolved_epochs(config, *stored);
}

}  // namespace stoker::config
