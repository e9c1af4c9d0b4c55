// SharedFolder: a folder of cache files that runs of several users, containers and hosts read and
// create. A file appears in it complete and is never replaced by another.
//
// Trust:    a file is opened only if it was placed by root, by this user or, unless every user can
//           write to the folder, by its owner or a member of its group with write permission; if no
//           other user can change the file; and if it is not a link. The owner of a folder
//           is not trusted if every user can write to a folder above it, or above a link that leads there.
// Access:   files get the permissions that the folder gives its group and others.
// Threads:  const methods may be called from any thread.
// Blocking: for the disk.
// Errors:   kPermission (also for a file that is not trusted), kNoSpace, kIoError; others below.
// Crash:    leaves nothing, or without O_TMPFILE (NFS) a file with a temporary name, which the next
//           remove_leftovers() deletes.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::data::cache {

class SharedFolder {
 public:
  enum class Access { kRead, kUpdate };
  // How an incomplete file is created: without a name where the file system can, or with one.
  enum class Incomplete { kUnnamed, kNamed };
  // Writes to a descriptor; the name is for messages.
  using Write = std::function<Status(int fd, const std::string& name)>;

  // kNotFound; kAlreadyExists if it is not a folder.
  static Result<SharedFolder> open(const std::string& path);
  // Creates the folder and its parents if they are missing. Below a folder with the setgid bit the
  // group may write to them if it may write there.
  static Result<SharedFolder> open_or_create(const std::string& path);

  // Opens for reading, or for reading and writing. kNotFound.
  Result<UniqueFd> open_file(const std::string& name, Access access) const;
  // Creates a complete file. kAlreadyExists if there is one, which is not changed. `access`: what
  // the others that may write to the folder may do with the file.
  Status create_file(const std::string& name, Access access, const Write& write,
                     Incomplete incomplete = Incomplete::kUnnamed) const;
  Status remove_file(const std::string& name) const;

  // Locks the folder, so that not all create the same file. Only saves work: files are
  // complete and never replaced with or without it. kBusy if another process holds the lock.
  Result<FileLock> lock() const;
  // Removes the temporary files of killed processes. Leftovers of other users that cannot be opened
  // remain.
  void remove_leftovers() const;

 private:
  SharedFolder(std::string path, UniqueFd fd, const struct stat& info, bool is_trusted);
  std::string path_of(const std::string& name) const { return join_path(path_, name); }
  // Whether all that may write to the folder are trusted.
  bool trusts_writers() const;
  Status check(const struct stat& file, const std::string& name) const;
  Status apply_permissions(int fd, Access access, const std::string& name) const;
  Result<UniqueFd> open_lock() const;
  // An incomplete file without a name; invalid if that is not supported.
  UniqueFd create_unnamed() const;
  Status create_named(const std::string& name, Access access, const Write& write) const;

  // Constant after construction.
  std::string path_;
  UniqueFd fd_;
  struct stat info_;
  bool is_owner_trusted_;
};

}  // namespace stoker::data::cache
