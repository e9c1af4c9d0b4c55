// plugin_args: converts model.args to the form that the factory of a plugin reads.
//
// Threads: pure function.
#pragma once

#include <string>

#include <stoker/plugin.h>

#include "shared/base/status.h"

namespace stoker::model {

// `json`: the text of a JSON object; null values are treated as missing. kInvalidArgument: not a
// JSON object.
Result<plugin::Args> plugin_args(const std::string& json);

}  // namespace stoker::model
