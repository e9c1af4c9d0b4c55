// plugin_args: model.args, in the form in which a plugin's factory asks for them.
//
// Threads: pure function.
#pragma once

#include <string>

#include <stoker/plugin.h>

#include "shared/base/status.h"

namespace stoker::model {

// `json`: the text of a JSON object. What is null is as if it were not there. kInvalidArgument: it
// is no such text.
Result<plugin::Args> plugin_args(const std::string& json);

}  // namespace stoker::model
