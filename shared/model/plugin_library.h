// load_plugin: loads the shared object of a plugin model into this process and returns its entry.
//
// Plugin code runs inside this process, so files that any user can modify are rejected.
//
// Threads:   any; each call loads the library again (dlopen reference count).
// Ownership: the library is never unloaded, because its models can live until the process exits.
// Errors:    kNotFound, kIoError: of the path. kPermission: any user can write to the file or its
//            directory. kInvalidArgument: not a shared object, cannot be loaded (the message
//            contains what is missing), or has no entry. kMismatch: compiled for another plugin
//            version, LibTorch or C++ ABI; names both sides. All messages contain the path and a
//            suggested fix.
#pragma once

#include <string>

#include <stoker/plugin_entry.h>

#include "shared/base/status.h"

namespace stoker::model {

Result<const StokerPlugin*> load_plugin(const std::string& path);

}  // namespace stoker::model
