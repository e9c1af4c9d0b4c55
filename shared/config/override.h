// override: applies --set KEY=VALUE options to the tree of a configuration file.
//
// Threads: one tree per thread.
#pragma once

#include <string>
#include <vector>

#include "shared/config/yaml_value.h"

namespace stoker::config {

// Sets each option's value at its key in `root`, in order, so that the last option for a key wins.
// VALUE is YAML and replaces the complete previous value. KEY= stores a kRemoved value: the reader
// still checks the key, and the default applies again.
void apply_overrides(const std::vector<std::string>& flags, Value& root, ConfigErrors& errors);

}  // namespace stoker::config
