// regular_file: what fstat() says of an open file, which must be a regular one.
//
// Threads: a function of its arguments.
// Errors:  `irregular` (not a regular file); those of fstat().
#pragma once

#include <sys/stat.h>

#include <string>

#include "shared/base/status.h"

namespace stoker {

Result<struct stat> regular_file(int fd, const std::string& path,
                                 StatusCode irregular = StatusCode::kInvalidArgument);

}  // namespace stoker
