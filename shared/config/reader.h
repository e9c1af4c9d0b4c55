// reader: reads a tree of YAML values into the fields of a Config and checks each field separately.
//
// Threads: one object per thread.
// Errors:  added to `errors` with the full name of the field and the location of the value. The
//          field keeps its previous value or its default.
#pragma once

#include <string>

#include "shared/config/config.h"
#include "shared/config/config_errors.h"
#include "shared/config/yaml_value.h"

namespace stoker::config {

// Fields whose keys `root` does not contain are unchanged. Returns the keys that it contains.
ExplicitKeys read_settings(const Value& root, Config& config, ConfigErrors& errors);

// A mapping with user-defined keys as the text of a JSON object, with sorted keys.
std::string untyped_map_to_json(const Value& map, const std::string& key, ConfigErrors& errors);

}  // namespace stoker::config
