#include "shared/config/load_config.h"

#include "shared/base/file.h"
#include "shared/config/cross_checks.h"
#include "shared/config/defaults.h"
#include "shared/config/override.h"
#include "shared/config/read_settings.h"

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
  Mistakes mistakes(name_in_messages, overrides);
  if (yaml.size() > kMaxFileBytes) {
    mistakes.add({}, "", "is larger than 1 MiB; a configuration is some lines of text");
    return mistakes.status();
  }
  Value root = parse_yaml(yaml, -1, "", mistakes);
  // What follows from half a file would be noise.
  if (!mistakes.empty()) return mistakes.status();
  apply_overrides(overrides, root, mistakes);
  Config config;
  const GivenKeys given = read_settings(root, config, mistakes);
  apply_dependent_defaults(given, config);
  check_together(config, given, mistakes);
  if (!mistakes.empty()) return mistakes.status();
  return config;
}

}  // namespace stoker::config
