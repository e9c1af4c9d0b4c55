// check_writers: whether a user who is not trusted may change a run, as sshd and PostgreSQL check their
// directories.
//
// Threads:  any.
// Blocking: for the file system; for a group that may write also for the name service.
#pragma once

#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::run {

enum class RunOwner {
  kTrusted,  // this user or root, as of a run that is trained
  kAny,      // as of a run that is evaluated, or that a group shares (run.allow_group_access)
};

// Checks the run directory, and the folders in it that exist. Nobody but owner and group may write to
// them. A directory that is kTrusted belongs to this user or root, and its group may write to it only if it
// is the owner's private one. No directory above it may be writable by anybody without the sticky bit: any user
// could rename the run there. Its owner and its group are not checked: they can put another directory in its place,
// which then belongs to them or is another run below it, and no link (DirectoryRoot). ACLs are covered: the mode shows their mask as the rights of the
// group.
//
// kInvalidArgument (exit code 78): names the directory, who may write to it, and the command that
// changes this. kNotFound, kPermission, kIoError.
Status check_writers(const RunLayout& layout, RunOwner owner);

}  // namespace stoker::run
