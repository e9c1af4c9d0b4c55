// The file that a model is made by (model.path: a plugin or a TorchScript module): whether its code
// may be run, and which file it is.
//
// Threads: any.
#pragma once

#include <string>

#include "shared/base/status.h"
#include "shared/config/model_config.h"

namespace stoker::model {

// Its path without links, so that what is looked at is what is loaded. Such a file is a program
// that gets the rights of whoever starts stoker. kNotFound, kIoError: of the path.
// kInvalidArgument: no regular file. kPermission: everyone may write to it, or replace it in its
// folder.
Result<std::string> trusted_file(const std::string& path);

// The SHA-256 (hex) of the file at model.path, a part of what the run is; empty for models
// that have none. It is logged. kNotFound, kIoError; kCorrupt: it is being written.
Result<std::string> file_digest(const config::ModelConfig& config);

// Weights mean nothing to another program than the one that they were trained with.
// kInvalidArgument where `saved`, a checkpoint's Manifest::model_file, says something, and not
// `now`; names both.
Status check_same_file(const std::string& saved, const std::string& now, const std::string& path);

}  // namespace stoker::model
