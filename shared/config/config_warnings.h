// ConfigWarning: settings that are valid, each alone, but contradict each other, so that one of them has no
// effect or not the intended one. Reported wherever a configuration takes effect: --check-config, the start of
// a run, `set`. Contradictions that are never intended are errors (validation.h).
//
// Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "shared/config/config.h"

namespace stoker::config {

struct ConfigWarning {
  std::string key;      // of the setting to change
  std::string message;  // what happens, and what to do

  std::string text() const { return key + ": " + message; }
};

std::vector<ConfigWarning> find_config_warnings(const Config& config);
// Those of keys for which `previous` has none.
std::vector<ConfigWarning> new_config_warnings(const Config& previous, const Config& config);

}  // namespace stoker::config
