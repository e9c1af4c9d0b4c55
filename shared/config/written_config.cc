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

std::string digest(const Config& config) {
  Config copy = config;
  std::string text;
  for (const Section& section : sections_of(copy))
    for (const Field& field : section.fields)
      if (field.decides && section.reads(field))
        text += section.key + '.' + std::string(field.name) + '=' + yaml_of(field.target) + '\n';
  return sha256_hex(text);
}

}  // namespace stoker::config
