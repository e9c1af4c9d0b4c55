// free_map: a mapping whose keys stoker does not know (model.parameters), kept as the text of a
// JSON object: keys in their order, numbers and words as YAML means them, on one line.
//
// That text is YAML too, which comes to the same object again.
//
// Threads: pure function.
#pragma once

#include <string>

#include "shared/config/mistakes.h"
#include "shared/config/yaml_value.h"

namespace stoker::config {

// `map` is a map; `key` is its name in messages. Adds a mistake for a text with a control
// character.
std::string free_map_of(const Value& map, const std::string& key, Mistakes& mistakes);

}  // namespace stoker::config
