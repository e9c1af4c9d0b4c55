// load_plugin: a shared object with a model in it, loaded into this process and asked for its
// entry.
//
// A plugin is a program: what it does, this process does. So nothing is loaded that anyone could
// have put there.
//
// Threads:  any; each call counts once.
// Owner:    nobody unloads it: models made by it may live as long as the process.
// Errors:   kNotFound, kIoError: of the path. kPermission: the file, or the folder it is in, may be
//           written by everyone. kInvalidArgument: not a shared object, cannot be loaded (says what
//           is missing), or without an entry. kMismatch: made for other plugins, another LibTorch
//           or another C++ library; says both sides. All name the path and what to do.
#pragma once

#include <string>

#include <stoker/plugin_entry.h>

#include "shared/base/status.h"

namespace stoker::model {

Result<const StokerPlugin*> load_plugin(const std::string& path);

}  // namespace stoker::model
