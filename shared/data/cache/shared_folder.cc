#include "shared/data/cache/shared_folder.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <utility>

namespace stoker::data::cache {
namespace {

// Not the name of the lock of a run directory, which can be the same folder.
const std::string kLockName = "CACHE_LOCK";
// Between the name of a file and the random digits. Not the mark of write_file_atomically(), whose
// leftovers a run removes without looking whether their writer lives.
constexpr std::string_view kIncompleteMark = ".incomplete-";

bool is_ours(uid_t user) { return user == 0 || user == ::geteuid(); }

std::string user_text(uid_t user) { return "user " + std::to_string(user); }

// Whether anybody may write to a folder above `path`, or above a link that leads there.
bool is_below_open_folder(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kMaxLinks = 40;  // as in the kernel
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (error) return true;
  std::deque<fs::path> names(absolute.begin(), absolute.end());
  fs::path at = "/";  // without links
  for (int num_links = 0; !names.empty();) {
    const fs::path name = std::move(names.front());
    names.pop_front();
    if (name.empty() || name == ".") continue;
    if (name == "/" || name == "..") {
      at = name == "/" ? name : at.parent_path();
      continue;
    }
    struct stat info {};
    if (::stat(at.c_str(), &info) != 0 || (info.st_mode & S_IWOTH) != 0) return true;
    const fs::path next = at / name;
    if (!fs::is_symlink(next, error)) {
      at = next;
      continue;
    }
    const fs::path target = fs::read_symlink(next, error);
    if (error || ++num_links > kMaxLinks) return true;
    names.insert(names.begin(), target.begin(), target.end());
  }
  return false;
}

// Gives the group access to a folder that this process has made. Not by its path: another member can have put a link
// to a folder of this user there.
void permit_group(const std::string& path, mode_t of_others) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat made {};
  if (fd.valid() && ::fstat(fd.get(), &made) == 0 && made.st_uid == ::geteuid())
    (void)::fchmod(fd.get(), S_ISGID | 0770 | of_others);
}

Status create_folder(const std::string& path) {
  std::filesystem::path partial;
  for (const auto& part : std::filesystem::path(path)) {
    const std::filesystem::path above = partial.empty() ? "." : partial;
    partial /= part;
    if (::mkdir(partial.c_str(), 0750) != 0) {
      if (std::error_code error; std::filesystem::is_directory(partial, error)) continue;
      return errno == EEXIST ? Status(StatusCode::kAlreadyExists,
                                      partial.string() + ": exists but is not a directory")
                             : Status::from_errno(errno, "mkdir " + partial.string());
    }
    struct stat parent {};
    constexpr mode_t kForGroup = S_ISGID | S_IWGRP;
    if (::stat(above.c_str(), &parent) == 0 && (parent.st_mode & kForGroup) == kForGroup)
      permit_group(partial.string(), parent.st_mode & (S_IROTH | S_IXOTH));
  }
  return {};
}

// ".NAME.incomplete-DIGITS", with the random digits of temporary_path().
std::string incomplete_name(const std::string& name) {
  const std::string random = temporary_path(name);
  return '.' + name + std::string(kIncompleteMark) + random.substr(random.rfind('-') + 1);
}

// Whether the kernel and the mounts let a file without a name get one.
bool can_link_unnamed(int fd) {
  return ::access(("/proc/self/fd/" + std::to_string(fd)).c_str(), F_OK) == 0;
}

// Renames without replacing. Where the file system cannot, as NFS, links and unlinks.
int publish(int folder, const std::string& from, const std::string& to) {
  if (::syscall(SYS_renameat2, folder, from.c_str(), folder, to.c_str(), RENAME_NOREPLACE) == 0)
    return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (::linkat(folder, from.c_str(), folder, to.c_str(), 0) != 0) return errno;
  (void)::unlinkat(folder, from.c_str(), 0);
  return 0;
}

}  // namespace

SharedFolder::SharedFolder(std::string path, UniqueFd fd, const struct stat& info, bool is_trusted)
    : path_(std::move(path)), fd_(std::move(fd)), info_(info), is_owner_trusted_(is_trusted) {}

Result<SharedFolder> SharedFolder::open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOTDIR)
    return Status(StatusCode::kAlreadyExists, path + ": exists but is not a directory");
  if (!fd.valid()) return Status::from_errno(errno, "open " + path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  const bool is_trusted = is_ours(info.st_uid) || !is_below_open_folder(path);
  return SharedFolder(path, std::move(fd), info, is_trusted);
}

Result<SharedFolder> SharedFolder::open_or_create(const std::string& path) {
  STOKER_RETURN_IF_ERROR(create_folder(path));
  return open(path);
}

// ---- Trust

bool SharedFolder::trusts_writers() const {
  return is_owner_trusted_ && (info_.st_mode & S_IWOTH) == 0;
}

Status SharedFolder::check(const struct stat& file, const std::string& name) const {
  const auto reject = [&](const std::string& why) {
    return Status(StatusCode::kPermission,
                  path_of(name) + ": " + why + "; remove the file, or choose another folder");
  };
  if (!S_ISREG(file.st_mode)) return reject("is not a regular file");
  const bool is_of_group =
      trusts_writers() && (info_.st_mode & S_IWGRP) != 0 && file.st_gid == info_.st_gid;
  const bool is_of_owner = trusts_writers() && file.st_uid == info_.st_uid;
  if (!is_ours(file.st_uid) && !is_of_group && !is_of_owner) {
    const std::string owner = "belongs to " + user_text(file.st_uid);
    if ((info_.st_mode & S_IWOTH) != 0)
      return reject(owner + ", and anybody may write to the folder");
    if (!is_owner_trusted_)
      return reject(owner + ", and anybody may write to a folder above its folder");
    return reject(owner + ", who may not write to the folder");
  }
  const mode_t writable = file.st_mode & (S_IWOTH | (is_of_group ? 0 : S_IWGRP));
  if (writable != 0) return reject("may be changed by users who may not write to the folder");
  return {};
}

Status SharedFolder::apply_permissions(int fd, Access access, const std::string& name) const {
  // Fails for a user who is not in that group; its members then get what others get.
  struct stat file {};
  (void)::fchown(fd, static_cast<uid_t>(-1), info_.st_gid);
  if (::fstat(fd, &file) != 0) return Status::from_errno(errno, "stat " + name);
  mode_t mode = S_IRUSR | S_IWUSR | (info_.st_mode & S_IROTH);
  if (file.st_gid == info_.st_gid) mode |= info_.st_mode & S_IRGRP;
  if (file.st_gid == info_.st_gid && access == Access::kUpdate && trusts_writers())
    mode |= info_.st_mode & S_IWGRP;
  if (::fchmod(fd, mode) != 0) return Status::from_errno(errno, "chmod " + name);
  return {};
}

// ---- Files

Result<UniqueFd> SharedFolder::open_file(const std::string& name, Access access) const {
  const int flags = (access == Access::kUpdate ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK |
                    O_NOCTTY | O_CLOEXEC;
  UniqueFd fd(::openat(fd_.get(), name.c_str(), flags));
  struct stat info {};
  if (!fd.valid()) {
    const Status failed = Status::from_errno(errno, "open " + path_of(name));
    if (::fstatat(fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return failed;
    STOKER_RETURN_IF_ERROR(check(info, name));
    if (is_ours(info.st_uid)) return failed;
    return Status(failed.code(), failed.message() + ", it belongs to " + user_text(info.st_uid));
  }
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path_of(name));
  STOKER_RETURN_IF_ERROR(check(info, name));
  return fd;
}

UniqueFd SharedFolder::create_unnamed() const {
  UniqueFd fd(::openat(fd_.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  return fd.valid() && can_link_unnamed(fd.get()) ? std::move(fd) : UniqueFd();
}

Status SharedFolder::create_file(const std::string& name, Access access, const Write& write,
                                 Incomplete incomplete) const {
  const UniqueFd fd = incomplete == Incomplete::kUnnamed ? create_unnamed() : UniqueFd();
  if (!fd.valid()) return create_named(name, access, write);
  const std::string path = path_of(name);
  STOKER_RETURN_IF_ERROR(write(fd.get(), path));
  STOKER_RETURN_IF_ERROR(apply_permissions(fd.get(), access, path));
  STOKER_RETURN_IF_ERROR(default_file_system().sync(fd.get(), path));
  const std::string link = "/proc/self/fd/" + std::to_string(fd.get());
  if (::linkat(AT_FDCWD, link.c_str(), fd_.get(), name.c_str(), AT_SYMLINK_FOLLOW) != 0)
    return Status::from_errno(errno, "create " + path);
  return default_file_system().sync(fd_.get(), path_);
}

Status SharedFolder::create_named(const std::string& name, Access access,
                                  const Write& write) const {
  std::string temporary, path;
  UniqueFd fd;
  struct stat info {};
  // Locked, which tells remove_leftovers() that this process lives. It may have come before.
  do {
    temporary = incomplete_name(name);
    path = path_of(temporary);
    fd = UniqueFd(::openat(fd_.get(), temporary.c_str(), kNewFile | O_CLOEXEC, 0600));
    if (!fd.valid()) return Status::from_errno(errno, "create " + path);
    // Where there are no locks, nothing is removed.
    (void)::flock(fd.get(), LOCK_EX);
    if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  } while (info.st_nlink == 0);
  const auto write_all = [&]() -> Status {
    STOKER_RETURN_IF_ERROR(write(fd.get(), path));
    STOKER_RETURN_IF_ERROR(apply_permissions(fd.get(), access, path));
    STOKER_RETURN_IF_ERROR(default_file_system().sync(fd.get(), path));
    if (const int error = publish(fd_.get(), temporary, name); error != 0)
      return Status::from_errno(error, "rename " + path + " to " + name);
    return {};
  };
  Status written;
  try {
    written = write_all();
  } catch (...) {  // such as ScanStopped
    (void)::unlinkat(fd_.get(), temporary.c_str(), 0);
    throw;
  }
  if (!written.ok()) {
    (void)::unlinkat(fd_.get(), temporary.c_str(), 0);
    return written;
  }
  return default_file_system().sync(fd_.get(), path_);
}

Status SharedFolder::remove_file(const std::string& name) const {
  if (::unlinkat(fd_.get(), name.c_str(), 0) != 0 && errno != ENOENT)
    return Status::from_errno(errno, "remove " + path_of(name));
  return {};
}

// ---- The lock

// Two steps, because fs.protected_regular rejects O_CREAT for a file of another user.
Result<UniqueFd> SharedFolder::open_lock() const {
  for (int tries = 0; tries < 2; ++tries) {
    auto existing = open_file(kLockName, Access::kUpdate);
    if (existing.status().code() != StatusCode::kNotFound) return existing;
    UniqueFd fd(::openat(fd_.get(), kLockName.c_str(),
                         O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd.valid()) {
      STOKER_RETURN_IF_ERROR(apply_permissions(fd.get(), Access::kUpdate, path_of(kLockName)));
      return fd;
    }
    if (errno != EEXIST) break;
  }
  return Status::from_errno(errno, "create " + path_of(kLockName));
}

Result<FileLock> SharedFolder::lock() const {
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, open_lock());
  struct stat info {};
  // A second name of another file of this user, which writing the holder would truncate.
  if (::fstat(fd.get(), &info) != 0 || info.st_nlink != 1)
    return Status(StatusCode::kPermission, path_of(kLockName) + ": has a second name; remove it");
  std::array<char, 65> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  return lock_file(std::move(fd), path_of(kLockName),
                   "pid " + std::to_string(::getpid()) + " on " + std::string(host.data()));
}

void SharedFolder::remove_leftovers() const {
  const auto names = list_directory(path_);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!name.starts_with('.') || name.find(kIncompleteMark) == std::string::npos) continue;
    const UniqueFd fd(
        ::openat(fd_.get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (fd.valid() && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0)
      (void)::unlinkat(fd_.get(), name.c_str(), 0);
  }
}

}  // namespace stoker::data::cache
