// read_settings: from the tree of YAML values to the fields of a Config, each checked by itself.
//
// Threads: one object per thread.
#pragma once

#include "shared/config/config.h"
#include "shared/config/given_keys.h"
#include "shared/config/yaml_value.h"

namespace stoker::config {

// Fields that `root` does not name keep their value. Adds to `mistakes`: unknown keys, values of the
// wrong type or out of range, keys that the section's kind does not read.
GivenKeys read_settings(const Value& root, Config& config, Mistakes& mistakes);

}  // namespace stoker::config
