#include "tests/reliability/file_call_table.h"

#include <sys/syscall.h>

namespace stoker::test {
namespace {

constexpr bool kFd = true;
constexpr bool kChanges = true;
constexpr bool kPolls = false;

constexpr FileCallShape kFileCalls[] = {
    // Calls with a directory descriptor and a path.
    {SYS_openat, "openat", 1, !kFd, kChanges, 0, -1, -1, -1, true},
    {SYS_openat2, "openat2", 1, !kFd, kChanges, 0, -1, -1, -1, true},
    {SYS_mkdirat, "mkdirat", 1, !kFd, kChanges, 0},
    {SYS_unlinkat, "unlinkat", 1, !kFd, kChanges, 0},
    {SYS_renameat2, "renameat2", 1, !kFd, kChanges, 0, 3, 2},
    {SYS_linkat, "linkat", 1, !kFd, kChanges, 0, 3, 2},
    {SYS_symlinkat, "symlinkat", 2, !kFd, kChanges, 1},
    {SYS_fchmodat, "fchmodat", 1, !kFd, kChanges, 0},
    {SYS_newfstatat, "newfstatat", 1, !kFd, kPolls, 0},
    {SYS_statx, "statx", 1, !kFd, kPolls, 0},
    {SYS_faccessat, "faccessat", 1, !kFd, kPolls, 0},
    {SYS_readlinkat, "readlinkat", 1, !kFd, kPolls, 0},
    // Calls with a path.
    {SYS_inotify_add_watch, "inotify_add_watch", 1, !kFd, kPolls},
    {SYS_truncate, "truncate", 0, !kFd, kChanges},
    {SYS_statfs, "statfs", 0, !kFd, kPolls},
    {SYS_open, "open", 0, !kFd, kChanges, -1, -1, -1, -1, true},
    {SYS_creat, "creat", 0, !kFd, kChanges},
    {SYS_mkdir, "mkdir", 0, !kFd, kChanges},
    {SYS_rmdir, "rmdir", 0, !kFd, kChanges},
    {SYS_unlink, "unlink", 0, !kFd, kChanges},
    {SYS_rename, "rename", 0, !kFd, kChanges, -1, 1, -1},
    {SYS_renameat, "renameat", 1, !kFd, kChanges, 0, 3, 2},
    {SYS_link, "link", 0, !kFd, kChanges, -1, 1, -1},
    {SYS_symlink, "symlink", 1, !kFd, kChanges},
    {SYS_chmod, "chmod", 0, !kFd, kChanges},
    {SYS_stat, "stat", 0, !kFd, kPolls},
    {SYS_lstat, "lstat", 0, !kFd, kPolls},
    {SYS_access, "access", 0, !kFd, kPolls},
    {SYS_readlink, "readlink", 0, !kFd, kPolls},
    // Calls with a descriptor.
    {SYS_write, "write", 0, kFd, kChanges, -1, -1, -1, 2},
    {SYS_pwrite64, "pwrite64", 0, kFd, kChanges, -1, -1, -1, 2},
    {SYS_writev, "writev", 0, kFd, kChanges},
    {SYS_fsync, "fsync", 0, kFd, kChanges},
    {SYS_fdatasync, "fdatasync", 0, kFd, kChanges},
    {SYS_sync_file_range, "sync_file_range", 0, kFd, kChanges},
    {SYS_fallocate, "fallocate", 0, kFd, kChanges},
    {SYS_ftruncate, "ftruncate", 0, kFd, kChanges},
    {SYS_fchmod, "fchmod", 0, kFd, kChanges},
    {SYS_close, "close", 0, kFd, kPolls},
    {SYS_flock, "flock", 0, kFd, kPolls},
    {SYS_read, "read", 0, kFd, kPolls},
    {SYS_pread64, "pread64", 0, kFd, kPolls},
    {SYS_getdents64, "getdents64", 0, kFd, kPolls},
    {SYS_fstat, "fstat", 0, kFd, kPolls},
};

}  // namespace

const FileCallShape* find_file_call(unsigned long long number) {
  for (const FileCallShape& shape : kFileCalls)
    if (static_cast<unsigned long long>(shape.number) == number) return &shape;
  return nullptr;
}

}  // namespace stoker::test
