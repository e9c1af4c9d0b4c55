#include "shared/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "shared/base/directory_root.h"
#include "shared/base/regular_file.h"

namespace stoker {
namespace {

using DirectoryStream = std::unique_ptr<DIR, int (*)(DIR*)>;

// Without "." and "..". Opens the directory again, because the sandbox of workers has no call that duplicates a descriptor.
Result<std::vector<std::string>> read_names(int fd, const std::string& path) {
  UniqueFd copy(::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!copy.valid()) return Status::from_errno(errno, "open directory " + path);
  const DirectoryStream directory(::fdopendir(copy.get()), &::closedir);
  if (!directory) return Status::from_errno(errno, "open directory " + path);
  (void)copy.release();
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return Status::from_errno(errno, "read directory " + path);
  return names;
}

// Ok if it does not exist; never follows a symlink.
Status remove_entry(int directory, const std::string& name, const std::string& path) {
  const UniqueFd fd(
      ::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return {};
  if (!fd.valid() && errno != ENOTDIR && errno != ELOOP)
    return Status::from_errno(errno, "open directory " + path);
  if (fd.valid()) {
    STOKER_ASSIGN_OR_RETURN(const auto names, read_names(fd.get(), path));
    for (const std::string& one : names)
      STOKER_RETURN_IF_ERROR(remove_entry(fd.get(), one, join_path(path, one)));
  }
  const int flags = fd.valid() ? AT_REMOVEDIR : 0;
  if (::unlinkat(directory, name.c_str(), flags) == 0 || errno == ENOENT) return {};
  return Status::from_errno(errno, "remove " + path);
}

Status too_large(uint64_t bytes, uint64_t max_bytes, const std::string& path) {
  return Status(StatusCode::kInvalidArgument, path + ": " + std::to_string(bytes) +
                                                  " bytes, more than the limit of " +
                                                  std::to_string(max_bytes));
}

Status check_size(int fd, uint64_t max_bytes, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Status::from_errno(errno, "stat " + path);
  const auto size = static_cast<uint64_t>(info.st_size);
  return size > max_bytes ? too_large(size, max_bytes, path) : Status();
}

bool is_directory(const std::string& path) {
  const auto place = resolve_parent(path);
  if (!place.ok()) return false;
  struct stat info {};
  const int flags = place->directory.valid() ? AT_SYMLINK_NOFOLLOW : 0;
  return ::fstatat(place->at(), place->name.c_str(), &info, flags) == 0 && S_ISDIR(info.st_mode);
}

// Written once, at the start of the program.
std::atomic<bool> has_group_access{false};

class PosixFileSystem final : public FileSystem {
 public:
  Result<UniqueFd> open(const std::string& path, int flags, mode_t mode) override {
    return open_path(path, flags, mode_of_new_file(mode));
  }

  Status write(int fd, std::span<const std::byte> bytes, const std::string& path) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd, bytes.data(), bytes.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        return Status::from_errno(errno, "write " + path);
      }
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return {};
  }

  Status reserve(int fd, uint64_t bytes, const std::string& path) override {
    while (::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) != 0) {
      if (errno == EINTR) continue;
      if (errno == EOPNOTSUPP || errno == ENOSYS) return {};
      return Status::from_errno(errno, "reserve " + std::to_string(bytes) + " bytes for " + path);
    }
    return {};
  }

  Result<size_t> read_at(int fd, uint64_t offset, std::span<std::byte> bytes,
                         const std::string& path) override {
    size_t total = 0;
    while (total < bytes.size()) {
      const ssize_t got = ::pread(fd, bytes.data() + total, bytes.size() - total,
                                  static_cast<off_t>(offset + total));
      if (got < 0) {
        if (errno == EINTR) continue;
        return Status::from_errno(errno,
                                  "read " + path + " at offset " + std::to_string(offset + total));
      }
      if (got == 0) break;
      total += static_cast<size_t>(got);
    }
    return total;
  }

  Status sync(int fd, const std::string& path) override {
    if (::fsync(fd) != 0) return Status::from_errno(errno, "fsync " + path);
    return {};
  }

  Status sync_directory(const std::string& path) override {
    STOKER_ASSIGN_OR_RETURN(UniqueFd fd, open(path, O_RDONLY | O_DIRECTORY, 0));
    return sync(fd.get(), path);
  }

  Status make_directory(const std::string& path) override {
    return make_directory_at(path, mode_of_new_file(0750));
  }

  Status rename(const std::string& from, const std::string& to) override {
    STOKER_ASSIGN_OR_RETURN(const PathAt source, resolve_parent(from));
    STOKER_ASSIGN_OR_RETURN(const PathAt target, resolve_parent(to));
    if (::renameat(source.at(), source.name.c_str(), target.at(), target.name.c_str()) != 0)
      return Status::from_errno(errno, "rename " + from + " to " + to);
    return {};
  }

  Status rename_noreplace(const std::string& from, const std::string& to) override {
    STOKER_ASSIGN_OR_RETURN(const PathAt source, resolve_parent(from));
    STOKER_ASSIGN_OR_RETURN(const PathAt target, resolve_parent(to));
    if (::syscall(SYS_renameat2, source.at(), source.name.c_str(), target.at(), target.name.c_str(),
                  RENAME_NOREPLACE) == 0)
      return {};
    if (errno != EINVAL && errno != ENOSYS)
      return Status::from_errno(errno, "rename " + from + " to " + to);
    // A file system without RENAME_NOREPLACE (NFS, some FUSE). Callers hold the lock of the run
    // directory, so no other process creates `to` between the check and the rename. rename() itself
    // rejects a directory that is not empty.
    struct stat existing {};
    if (::fstatat(target.at(), target.name.c_str(), &existing, AT_SYMLINK_NOFOLLOW) == 0)
      return Status::from_errno(EEXIST, "rename " + from + " to " + to);
    return rename(from, to);
  }

  Status remove_file(const std::string& path) override {
    STOKER_ASSIGN_OR_RETURN(const PathAt place, resolve_parent(path));
    if (::unlinkat(place.at(), place.name.c_str(), 0) != 0)
      return Status::from_errno(errno, "remove " + path);
    return {};
  }

  Status remove_tree(const std::string& path) override {
    const auto place = resolve_parent(path);
    if (place.status().code() == StatusCode::kNotFound) return {};
    if (!place.ok()) return place.status();
    return remove_entry(place->at(), place->name, path);
  }

  Result<uint64_t> free_bytes(const std::string& path) override {
    STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, open_path(path, O_PATH));
    struct statvfs info {};
    if (::fstatvfs(fd.get(), &info) != 0) return Status::from_errno(errno, "statvfs " + path);
    return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  }
};

// ".NAME.tmp-DIGITS" is a file that write_file_atomically() has not renamed yet.
constexpr std::string_view kTemporaryMark = ".tmp-";
constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr size_t kTemporaryDigits = 16;

bool is_temporary_name(std::string_view name) {
  if (name.size() < kTemporaryDigits || !name.starts_with('.')) return false;
  const std::string_view digits = name.substr(name.size() - kTemporaryDigits);
  name.remove_suffix(kTemporaryDigits);
  return digits.find_first_not_of(kHexDigits) == digits.npos && name.ends_with(kTemporaryMark) &&
         name.size() > 1 + kTemporaryMark.size();
}

}  // namespace

Status FileSystem::reserve(int, uint64_t, const std::string&) { return {}; }

FileSystem& default_file_system() {
  static PosixFileSystem files;
  return files;
}

void allow_group_access() {
  has_group_access = true;
  ::umask(::umask(0) & ~static_cast<mode_t>(S_IRWXG));
}

mode_t mode_of_new_file(mode_t mode) {
  return has_group_access && (mode & S_IRGRP) != 0 ? mode | S_IWGRP : mode;
}

Result<struct stat> regular_file(int fd, const std::string& path, StatusCode irregular) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Status::from_errno(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return Status(irregular, path + ": not a regular file");
  return info;
}

Result<std::string> read_file(const std::string& path, uint64_t max_bytes) {
  // O_NONBLOCK: opening a FIFO must not block.
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, default_file_system().open(path, O_RDONLY | O_NONBLOCK));
  STOKER_ASSIGN_OR_RETURN(const struct stat info, regular_file(fd.get(), path));
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > max_bytes) return too_large(size, max_bytes, path);
  std::string content(size, '\0');
  STOKER_ASSIGN_OR_RETURN(
      const size_t got,
      default_file_system().read_at(fd.get(), 0, std::as_writable_bytes(std::span(content)), path));
  content.resize(got);
  return content;
}

Status for_each_line(const std::string& path, uint64_t max_line_bytes,
                     const std::function<Status(const FileLine&)>& on_line) {
  constexpr size_t kBlockBytes = 256 << 10;
  // A sparse file can have so many bytes that reading it never ends.
  constexpr uint64_t kMaxFileBytes = uint64_t{16} << 30;
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, default_file_system().open(path, O_RDONLY | O_NONBLOCK));
  STOKER_RETURN_IF_ERROR(regular_file(fd.get(), path).status());
  STOKER_RETURN_IF_ERROR(check_size(fd.get(), kMaxFileBytes, path));
  std::string block(kBlockBytes, '\0');
  std::string line;         // the beginning of one that is not complete yet
  uint64_t line_begin = 0;  // offset in the file
  for (uint64_t offset = 0;;) {
    STOKER_ASSIGN_OR_RETURN(const size_t got,
                            default_file_system().read_at(
                                fd.get(), offset, std::as_writable_bytes(std::span(block)), path));
    for (std::string_view rest = std::string_view(block).substr(0, got); !rest.empty();) {
      const size_t newline = rest.find('\n');
      const std::string_view part = rest.substr(0, newline);
      line += part.substr(0, max_line_bytes - line.size());
      offset += part.size();
      rest.remove_prefix(part.size());
      if (rest.empty()) break;
      ++offset;
      rest.remove_prefix(1);
      STOKER_RETURN_IF_ERROR(on_line({.text = line, .begin = line_begin, .end = offset}));
      line.clear();
      line_begin = offset;
    }
    if (got == block.size()) continue;
    if (offset == line_begin) return {};
    return on_line({.text = line, .begin = line_begin, .end = offset, .is_complete = false});
  }
}

Status read_exactly(int fd, uint64_t offset, std::span<std::byte> out, const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const size_t got, default_file_system().read_at(fd, offset, out, path));
  if (got == out.size()) return {};
  return Status(StatusCode::kCorrupt, path + ": ends at byte " + std::to_string(offset + got) +
                                          "; expected " + std::to_string(offset + out.size()) +
                                          " bytes");
}

std::string temporary_path(const std::string& path) {
  uint64_t random = 0;
  // Never incomplete for so few bytes; waits only while the kernel boots.
  while (::getrandom(&random, sizeof random, 0) < 0 && errno == EINTR) {
  }
  static_assert(kTemporaryDigits == 2 * sizeof random);
  std::string digits(kTemporaryDigits, '0');
  for (char& digit : digits) {
    digit = kHexDigits[random % kHexDigits.size()];
    random /= kHexDigits.size();
  }
  const std::filesystem::path whole(path);
  const std::string directory = whole.has_parent_path() ? whole.parent_path().string() : ".";
  return join_path(directory,
                   "." + whole.filename().string() + std::string(kTemporaryMark) + digits);
}

namespace {

Status replace_file(FileSystem& files, const std::string& path, std::string_view content,
                    bool is_private) {
  const std::string temporary = temporary_path(path);
  const std::string directory = std::filesystem::path(temporary).parent_path().string();
  const auto write_all = [&]() -> Status {
    // Private from the start: below the directory of another user, others are given to that user.
    STOKER_ASSIGN_OR_RETURN(UniqueFd fd, files.open(temporary, kNewFile, is_private ? 0600 : 0640));
    if (is_private && ::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0)
      return Status::from_errno(errno, "chmod " + temporary);
    STOKER_RETURN_IF_ERROR(files.write(fd.get(), std::as_bytes(std::span(content)), temporary));
    STOKER_RETURN_IF_ERROR(files.sync(fd.get(), temporary));
    STOKER_RETURN_IF_ERROR(files.rename(temporary, path));
    return files.sync_directory(directory);
  };
  Status status = write_all();
  // After a successful rename there is nothing to remove; the error is ignored.
  if (!status.ok()) (void)files.remove_file(temporary);
  return status;
}

}  // namespace

Status write_file_atomically(FileSystem& files, const std::string& path, std::string_view content) {
  return replace_file(files, path, content, false);
}

Status write_private_file_atomically(FileSystem& files, const std::string& path,
                                     std::string_view content) {
  return replace_file(files, path, content, true);
}

Status remove_temporary_files(FileSystem& files, const std::string& directory) {
  STOKER_ASSIGN_OR_RETURN(const auto names, list_directory(directory));
  for (const std::string& name : names)
    if (is_temporary_name(name))
      STOKER_RETURN_IF_ERROR(files.remove_file(join_path(directory, name)));
  return {};
}

Status make_directories(FileSystem& files, const std::string& path) {
  std::filesystem::path partial;
  for (const auto& part : std::filesystem::path(path)) {
    partial /= part;
    if (is_directory(partial.string())) continue;
    Status status = files.make_directory(partial.string());
    if (!status.ok() && status.code() != StatusCode::kAlreadyExists) return status;
    if (!is_directory(partial.string())) {
      return Status(StatusCode::kAlreadyExists,
                    partial.string() + ": exists but is not a directory");
    }
  }
  return {};
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, open_path(path, O_RDONLY | O_DIRECTORY));
  STOKER_ASSIGN_OR_RETURN(auto names, read_names(fd.get(), path));
  std::ranges::sort(names);
  return names;
}

std::string join_path(std::string_view directory, std::string_view name) {
  return (std::filesystem::path(directory) / name).string();
}

Result<FileLock> lock_file(const std::string& path, std::string_view holder) {
  STOKER_ASSIGN_OR_RETURN(
      UniqueFd fd, default_file_system().open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK));
  return lock_file(std::move(fd), path, holder);
}

Result<FileLock> lock_file(UniqueFd fd, const std::string& path, std::string_view holder) {
  STOKER_RETURN_IF_ERROR(regular_file(fd.get(), path).status());
  // is_locked() in another process holds a shared lock briefly; a real lock holder outlasts these
  // attempts.
  bool locked = false;
  for (int tries = 0; tries < 20 && !locked; ++tries) {
    if (tries > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    locked = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno != EWOULDBLOCK) return Status::from_errno(errno, "lock " + path);
  }
  if (!locked) {
    std::string lock_holder(4096, '\0');
    const auto got = default_file_system().read_at(
        fd.get(), 0, std::as_writable_bytes(std::span(lock_holder)), path);
    lock_holder.resize(got.ok() ? *got : 0);
    while (!lock_holder.empty() && lock_holder.back() == '\n') lock_holder.pop_back();
    return Status(StatusCode::kBusy, path + ": held by another process" +
                                         (lock_holder.empty() ? "" : " (" + lock_holder + ")"));
  }
  if (::ftruncate(fd.get(), 0) != 0) return Status::from_errno(errno, "truncate " + path);
  const std::string line = std::string(holder) + "\n";
  STOKER_RETURN_IF_ERROR(
      default_file_system().write(fd.get(), std::as_bytes(std::span(line)), path));
  return FileLock{std::move(fd)};
}

Result<bool> is_locked(const std::string& path) {
  auto opened = default_file_system().open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!opened.ok()) {
    if (opened.status().code() == StatusCode::kNotFound) return false;
    return opened.status();
  }
  STOKER_RETURN_IF_ERROR(regular_file(opened->get(), path).status());
  // A shared lock, held briefly. It fails exactly if another process holds the exclusive lock.
  if (::flock(opened->get(), LOCK_SH | LOCK_NB) == 0) return false;
  if (errno == EWOULDBLOCK) return true;
  return Status::from_errno(errno, "check lock " + path);
}

}  // namespace stoker
