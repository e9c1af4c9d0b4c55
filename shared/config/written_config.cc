#include "shared/base/sha256.h"
#include "shared/config/load_config.h"
#include "shared/config/schema.h"

namespace stoker::config {

std::string to_yaml(const Config& config) {
  Config copy = config;  // the schema's pointers may be written through
  std::string text;
  std::string above;
  for (const Section& section : sections_of(copy)) {
    std::string indent = "  ";
    if (section.key.starts_with("data.")) {
      if (above != "data") text += "data:\n";
      above = "data";
      text += "  " + section.key.substr(5) + ":\n";
      indent = "    ";
    } else {
      above = section.key;
      text += section.key + ":\n";
    }
    for (const Field& field : section.fields)
      if (section.reads(field))
        text += indent + std::string(field.name) + ": " + yaml_of(field.target) + '\n';
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> deciding_settings(const Config& config) {
  Config copy = config;
  std::vector<std::pair<std::string, std::string>> settings;
  for (const Section& section : sections_of(copy))
    for (const Field& field : section.fields)
      if (field.decides && section.reads(field))
        settings.emplace_back(section.key + '.' + std::string(field.name), yaml_of(field.target));
  return settings;
}

// Settings at their defaults are left out: a setting that is new in a later version, and not used,
// leaves the digest as it was.
std::string digest(const Config& config) {
  Config copy = config;
  Config defaults;
  for (const auto& [name, set] : config.data) defaults.data[name].kind = set.kind;
  const std::vector<Section> sections = sections_of(copy);
  const std::vector<Section> default_sections = sections_of(defaults);
  std::string text;
  for (size_t i = 0; i < sections.size(); ++i) {
    const Section& section = sections[i];
    for (size_t j = 0; j < section.fields.size(); ++j) {
      const Field& field = section.fields[j];
      if (!field.decides || !section.reads(field)) continue;
      const std::string value = yaml_of(field.target);
      if (field.name != "kind" && value == yaml_of(default_sections[i].fields[j].target)) continue;
      text += section.key + '.' + std::string(field.name) + '=' + value + '\n';
    }
  }
  return sha256_hex(text);
}

}  // namespace stoker::config
