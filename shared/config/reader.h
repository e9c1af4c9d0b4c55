// reader: from the tree of YAML values to the fields of a Config, each checked on its own.
//
// Threads: one object per thread.
// Errors:  are added to `errors`, under the field's full name and with the value's location; the field
//          keeps its previous value, or its default.
#pragma once

#include <string>

#include "shared/config/config.h"
#include "shared/config/config_errors.h"
#include "shared/config/yaml_value.h"

namespace stoker::config {

// Keys that `root` does not contain keep their value. Returns the keys that it contains.
ExplicitKeys read_settings(const Value& root, Config& config, ConfigErrors& errors);

// A mapping with the user's own keys as the text of a JSON object, keys sorted.
std::string untyped_map_to_json(const Value& map, const std::string& key, ConfigErrors& errors);

}  // namespace stoker::config
