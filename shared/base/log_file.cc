#include "shared/base/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace stoker {
namespace {

constexpr int kAppend = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
// Whatever the umask: a line is shown by other programs, and can contain data.
constexpr mode_t kMode = 0640;

}  // namespace

Result<LogFile> LogFile::open(const std::string& path, uint64_t rotate_bytes, int keep_files) {
  const std::filesystem::path named(path);
  const std::string parent = named.has_parent_path() ? named.parent_path().string() : ".";
  FileSystem& files = default_file_system();
  LogFile log;
  log.stem_ = named.stem().string();
  log.extension_ = named.extension().string();
  struct stat info {};
  const auto open_file = [&]() -> Status {
    STOKER_RETURN_IF_ERROR(make_directories(files, parent));
    STOKER_ASSIGN_OR_RETURN(log.directory_, files.open(parent, O_RDONLY | O_DIRECTORY));
    STOKER_ASSIGN_OR_RETURN(log.file_, files.open(path, kAppend, kMode));
    if (::fstat(log.file_.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
    return {};
  };
  const Status opened = open_file();
  const bool is_refused = opened.code() == StatusCode::kInvalidArgument;
  if (!opened.ok())
    return Status(is_refused ? opened.code() : StatusCode::kIoError, opened.message());
  log.rotate_bytes_ = rotate_bytes;
  log.keep_files_ = keep_files;
  log.is_regular_ = S_ISREG(info.st_mode);
  return log;
}

std::string LogFile::name(int number) const {
  return stem_ + (number > 0 ? "." + std::to_string(number) : "") + extension_;
}

// Others can truncate the file, so its size is read each time.
Status LogFile::append(std::string_view line) {
  if (is_regular_) reopen_if_moved();
  const off_t size = is_regular_ ? ::lseek(file_.get(), 0, SEEK_END) : 0;
  if (size > 0 && static_cast<uint64_t>(size) + line.size() > rotate_bytes_) rotate();
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(file_.get(), line.data() + done, line.size() - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (errno != EINTR) {
      const Status failed = Status::from_errno(errno, "write");
      if (done > 0 && is_regular_) remove_end(done);
      return failed;
    }
  }
  return {};
}

// As logrotate does. A file that cannot be opened again, such as in a directory that was removed, is
// continued.
void LogFile::reopen_if_moved() {
  const int at = directory_.get();
  struct stat current {
  }, named{};
  if (::fstat(file_.get(), &current) != 0) return;
  if (::fstatat(at, name(0).c_str(), &named, 0) == 0 && named.st_dev == current.st_dev &&
      named.st_ino == current.st_ino)
    return;
  UniqueFd file(
      ::openat(at, name(0).c_str(), kAppend | O_NOFOLLOW | O_NONBLOCK, mode_of_new_file(kMode)));
  // A hard link can be a file of this user in the directory of another one.
  if (file.valid() && ::fstat(file.get(), &named) == 0 && S_ISREG(named.st_mode) &&
      named.st_nlink == 1)
    file_ = std::move(file);
}

void LogFile::remove_end(size_t bytes) {
  const off_t end = ::lseek(file_.get(), 0, SEEK_CUR);  // of what was written
  if (end < static_cast<off_t>(bytes) || ::lseek(file_.get(), 0, SEEK_END) != end) return;
  [[maybe_unused]] const int ignored = ::ftruncate(file_.get(), end - static_cast<off_t>(bytes));
}

// The next file first: a disk without room for another file keeps the ones that it has.
void LogFile::rotate() {
  const int at = directory_.get();
  const auto move = [&](const std::string& from, const std::string& to) {
    return ::renameat(at, from.c_str(), at, to.c_str()) == 0 || errno == ENOENT;
  };
  const std::string next = name(0) + ".new";
  (void)::unlinkat(at, next.c_str(), 0);
  UniqueFd file(::openat(at, next.c_str(), kAppend | O_EXCL, mode_of_new_file(kMode)));
  if (!file.valid()) return;
  int moved = keep_files_;  // the files from this number on have the next one
  while (moved > 0 && move(name(moved - 1), name(moved))) --moved;
  if (moved == 0 && ::renameat(at, next.c_str(), at, name(0).c_str()) == 0) {
    file_ = std::move(file);
    return;
  }
  // Each further line tries again, which must not lose another file.
  for (; moved < keep_files_; ++moved) (void)move(name(moved + 1), name(moved));
  (void)::unlinkat(at, next.c_str(), 0);
}

}  // namespace stoker
