// write_derived_file: a file beside the index, made of the data set's files: there as a whole, or not at all.
//
// Blocking: as `write` does, then for the disk.
// Errors:   those of `write`; kNoSpace, kIoError, kPermission. No file of that name has then been
//           made or changed.
// Crash:    a file of another name is left, which the next run of remove_temporary_files() takes
//           away.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "shared/base/status.h"
#include "shared/data/files/file_table.h"

namespace stoker::data::files {

// kNoSpace, with the remedy, where a file of so many bytes has no room. `what` it is, and the setting
// by which it is wanted.
Status check_free_space(const std::string& path, uint64_t bytes, const std::string& what,
                        const std::string& setting);

// `write` writes to a descriptor; the name is for its messages. The file is appended to `made`,
// whose root is empty.
Status write_derived_file(const std::string& path,
                          const std::function<Status(int fd, const std::string& name)>& write,
                          FileTable& made);

}  // namespace stoker::data::files
