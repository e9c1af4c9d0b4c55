// variant_configs: a minimal valid configuration for each variant of each section.
#pragma once

#include <string>
#include <vector>

#include "shared/config/schema.h"

namespace stoker::config::test {

// Maps a section and variant, such as "data.train" and "webdataset", to a text that selects it.
// `variant` is empty for a section without variants.
std::string text_with_variant(const std::string& section, const std::string& variant);

struct SectionVariant {
  std::string section;
  std::string variant;
};
// For a configuration with data.train only.
std::vector<SectionVariant> all_section_variants();

// A default Config with that variant selected; it need not be valid.
Config config_with_variant(const SectionVariant& each);
// The section of `config`, which must outlive it.
Section section_of(Config& config, const std::string& key);

}  // namespace stoker::config::test
