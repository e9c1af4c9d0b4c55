// override: applies --set KEY=VALUE options to the tree of a configuration file.
//
// Threads: one tree per thread.
#pragma once

#include <string>
#include <vector>

#include "shared/config/yaml_value.h"

namespace stoker::config {

// Puts each option's value at its key in `root`, in order, so that the last one for a key wins. VALUE is
// YAML and replaces the previous value as a whole. KEY= leaves a kRemoved value, so that the reader still
// checks the key; the default applies again.
void apply_overrides(const std::vector<std::string>& flags, Value& root, ConfigErrors& errors);

}  // namespace stoker::config
