// trusted_file: checks that no other user can change a file that contains code to be run.
//
// Threads:  functions of their arguments and the file system.
// Blocking: for the file system.
#pragma once

#include <string>

#include "shared/base/status.h"

namespace stoker {

// Resolves `path` and returns the absolute path without symlinks, so that the checked file is the
// one that is used. The file, every directory above it and every directory on the way through
// symlinks must belong to root or to the user of this process, and must not be writable by their
// group or by others. A directory with the sticky bit, such as /tmp, can be writable, because only
// the owner of a file can replace it there; but its entry on the path must not be a symlink. ACLs
// are covered: the mode shows their mask as the rights of the group.
//
// kNotFound, kIoError: of the path. kInvalidArgument: not a regular file. kPermission: names the
// file or directory that another user controls, and the command that changes it.
Result<std::string> trusted_file(const std::string& path);

}  // namespace stoker
