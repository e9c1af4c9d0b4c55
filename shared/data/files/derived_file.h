// write_derived_file: atomically creates a file next to the index that is derived from the files of
// a dataset.
//
// Blocking: as `write`, then for the disk.
// Errors:   those of `write`; kNoSpace, kIoError, kPermission. On an error no file is created or
//           changed.
// Crash:    leaves a file with a temporary name, which the next remove_temporary_files() deletes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "shared/base/status.h"

namespace stoker::data::files {

// kNoSpace if the disk has less than `bytes` free. For the message: `what` needs the space, and
// `alternative` is what to do if there is none, such as "leave data.train.cache away".
Status check_free_space(const std::string& path, uint64_t bytes, const std::string& what,
                        const std::string& alternative);

// `write` writes to a descriptor; the name is for its messages.
Status write_derived_file(const std::string& path,
                          const std::function<Status(int fd, const std::string& name)>& write);

}  // namespace stoker::data::files
