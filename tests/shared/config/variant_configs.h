// VariantConfigs: a valid configuration for each variant of each section, with as few keys as possible.
#pragma once

#include <string>
#include <vector>

#include "shared/config/schema.h"

namespace stoker::config::test {

// "data.train", "webdataset" -> a text in which that section has that variant; `variant` is empty for a
// section without variants.
std::string text_with_variant(const std::string& section, const std::string& variant);

struct SectionVariant {
  std::string section;
  std::string variant;
};
// Of a configuration with data.train only.
std::vector<SectionVariant> all_section_variants();

// A Config with its defaults, and that variant selected; it need not be valid.
Config config_with_variant(const SectionVariant& each);
// The section in `config`, which owns what it describes.
Section section_of(Config& config, const std::string& key);

}  // namespace stoker::config::test
