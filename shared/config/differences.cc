#include <map>

#include "shared/config/load_config.h"
#include "shared/config/schema.h"

namespace stoker::config {
namespace {

// What each key that is read is set to, in the order of the schema.
std::vector<std::pair<std::string, std::string>> settings_of(const Config& config) {
  Config copy = config;
  std::vector<std::pair<std::string, std::string>> settings;
  for (const Section& section : sections_of(copy))
    for (const Field& field : section.fields)
      if (section.reads(field))
        settings.emplace_back(section.key + '.' + std::string(field.name), yaml_of(field.target));
  return settings;
}

}  // namespace

std::vector<std::string> differences(const Config& before, const Config& after) {
  const auto old_settings = settings_of(before);
  const auto new_settings = settings_of(after);
  const std::map<std::string, std::string> old_by_key(old_settings.begin(), old_settings.end());
  const std::map<std::string, std::string> new_by_key(new_settings.begin(), new_settings.end());
  std::vector<std::string> lines;
  const auto note = [&lines](const std::string& key, const std::string& was,
                             const std::string& is) {
    lines.emplace_back(key).append(": ").append(was).append(" -> ").append(is);
  };
  for (const auto& [key, value] : new_settings) {
    const auto old = old_by_key.find(key);
    const std::string was = old == old_by_key.end() ? "(not set)" : old->second;
    if (was != value) note(key, was, value);
  }
  for (const auto& [key, value] : old_settings)
    if (!new_by_key.contains(key)) note(key, value, "(not set)");
  return lines;
}

}  // namespace stoker::config
