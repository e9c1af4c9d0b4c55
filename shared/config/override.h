// override: --set KEY=VALUE over what the file says.
//
// Threads: one tree per thread.
#pragma once

#include <string>
#include <vector>

#include "shared/config/yaml_value.h"

namespace stoker::config {

// Puts each flag's value at its key in `root`, in order, so that the last flag for a key wins. VALUE is
// YAML and takes the place of what was there, as a whole; no value (KEY= or KEY=null) is left in the
// tree as such, for the reader to check the key: what the file says is gone, and the default holds again.
void apply_overrides(const std::vector<std::string>& flags, Value& root, Mistakes& mistakes);

}  // namespace stoker::config
