#include "shared/config/load_config.h"

#include "shared/base/file.h"
#include "shared/config/config_errors.h"
#include "shared/config/override.h"
#include "shared/config/reader.h"
#include "shared/config/validation.h"
#include "shared/config/yaml_value.h"

namespace stoker::config {
namespace {
constexpr uint64_t kMaxFileBytes = 1 << 20;
}

Result<Config> load_config(const std::string& path, const std::vector<std::string>& overrides) {
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxFileBytes));
  return parse_config(text, path, overrides);
}

Result<Config> parse_config(std::string_view yaml, const std::string& name_in_messages,
                            const std::vector<std::string>& overrides) {
  ConfigErrors errors(name_in_messages, overrides);
  if (yaml.size() > kMaxFileBytes) {
    errors.add({}, "", "is larger than 1 MiB, the limit of a configuration");
    return errors.status();
  }
  Value root = parse_yaml(yaml, -1, "", errors);
  // An incomplete file would cause consequential errors.
  if (!errors.empty()) return errors.status();
  apply_overrides(overrides, root, errors);
  Config config;
  const ExplicitKeys keys = read_settings(root, config, errors);
  apply_derived_defaults(keys, config);
  validate_config(config, keys, errors);
  if (!errors.empty()) return errors.status();
  return config;
}

}  // namespace stoker::config
