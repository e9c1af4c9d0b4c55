// The code file of a user-defined model (model.path: a plugin or a TorchScript module): checks
// whether it is safe to load and computes its digest.
//
// Threads: any.
#pragma once

#include <string>

#include "shared/base/status.h"
#include "shared/config/model_config.h"

namespace stoker::model {

// Resolves symlinks and checks the permissions of the file; returns the resolved path, so that the
// checked file is the one that is loaded. The file is a program that runs with the rights of the
// user who starts stoker. kNotFound, kIoError: of the path. kInvalidArgument: not a regular file.
// kPermission: any user can write to it, or replace it in its directory.
Result<std::string> trusted_file(const std::string& path);

// SHA-256 (hex) of the file at model.path, which is part of the identity of a run; empty for models
// without a file. Logs it. kNotFound, kIoError; kInvalidArgument: not a regular file; kCorrupt: the
// file is being written.
Result<std::string> file_digest(const config::ModelConfig& config);

// Weights are valid only with the code that they were trained with. kInvalidArgument if `saved`,
// the Manifest::model_file of a checkpoint, is not empty and differs from `now`; names both.
Status check_same_file(const std::string& saved, const std::string& now, const std::string& path);

}  // namespace stoker::model
