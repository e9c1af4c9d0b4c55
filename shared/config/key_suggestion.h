// KeySuggestion: what an unknown key probably means.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "shared/config/schema.h"
#include "shared/config/yaml_value.h"

namespace stoker::config {

struct KeySuggestion {
  std::vector<std::string> keys;  // full names; empty: nothing is similar
  std::string text;               // end of the error: "; did you mean 'optimizer.lr'?"
};

// `entry` of the mapping `section` ("train", "eval.early_stopping"; empty: the file), whose keys
// are `names`: a name of another library, a misspelt key, a key of another section, or, without
// anything similar, all `names`. `maybe_variants` are those of the section.
KeySuggestion suggest_key(const Entry& entry, const std::string& section,
                          const std::vector<std::string>& names, const Variants* maybe_variants);

}  // namespace stoker::config
