// DirectoryRoot: a directory in which other users may create files, such as the run of another user, as
// os.Root of Go. While it exists, default_file_system() and the functions of file.h reach every path below
// it through one descriptor. They follow no symlink there and open no FIFO, socket or device, so that
// nothing in the directory leads out of it or blocks. If it belongs to another user, a file that has several
// hard links is not opened for writing, because it can be one of this user, and what root creates there gets the
// owner and group of the directory, except private files. The path of the directory itself can contain
// symlinks: it is resolved once, and another directory that takes its place later is not touched.
//
// Threads:  any; the process has one set of roots.
// Blocking: file system calls; opening a file never waits for another process.
// Errors:   open(): as open(2); kInvalidArgument: a symlink on the path, with its path. Below it,
//           kInvalidArgument: a symlink, another special file or a hard link, with its path.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker {

enum class PathLinks {
  kOfTrustedUsers,  // of root, this user and the owner of the directory
  kOfAnyUser,       // what is only shown: this user may read it
};

class DirectoryRoot {
 public:
  // Applies to paths that start with `path`, or with its absolute form with or without symlinks.
  static Result<DirectoryRoot> open(const std::string& path,
                                    PathLinks links = PathLinks::kOfTrustedUsers);
  // Creates the directory, which must not exist. Another user who may write to the one above it cannot
  // put a symlink in its place.
  static Result<DirectoryRoot> create(const std::string& path, mode_t mode);

  DirectoryRoot(DirectoryRoot&&) noexcept = default;
  DirectoryRoot& operator=(DirectoryRoot&& other) noexcept;
  ~DirectoryRoot();

  // Whether its path now leads to another directory.
  bool is_replaced() const;

 private:
  friend class DirectoryRoots;
  struct Root;
  static Result<DirectoryRoot> open(const std::string& path, UniqueFd fd);
  explicit DirectoryRoot(std::shared_ptr<const Root> root) : root_(std::move(root)) {}

  std::shared_ptr<const Root> root_;
};

// ---- For the implementation of file.h and for what it has no function

// Opens a path, below a root or not. Adds O_CLOEXEC.
Result<UniqueFd> open_path(const std::string& path, int flags, mode_t mode = 0);

// As mkdir(2).
Status make_directory_at(const std::string& path, mode_t mode);

// A path as system calls with a directory descriptor take it, such as renameat(). Such a call must
// not follow a symlink in the last component.
struct PathAt {
  UniqueFd directory;  // not valid: the path is below no root
  std::string name;

  int at() const;
};
Result<PathAt> resolve_parent(const std::string& path);

enum class PathResolution {
  kKernel,      // openat2(); kComponents where it is missing or denied
  kComponents,  // openat() of each component
};
// Opens what is below `directory`. `path` is relative, without "..", empty for the directory itself.
// `name` is for messages.
Result<UniqueFd> open_beneath(int directory, std::string_view path, int flags, mode_t mode,
                              const std::string& name,
                              PathResolution resolution = PathResolution::kKernel);

}  // namespace stoker
