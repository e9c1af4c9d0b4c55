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
constexpr mode_t kMode = 0666;  // limited by the umask

}  // namespace

Result<LogFile> LogFile::open(const std::string& path, uint64_t rotate_bytes, int keep_files) {
  namespace fs = std::filesystem;
  const auto failed = [&path] {
    return Status(StatusCode::kIoError, Status::from_errno(errno, "open " + path).message());
  };
  const fs::path parent = fs::path(path).parent_path();
  std::error_code ignored;  // the next call fails, too
  if (!parent.empty()) fs::create_directories(parent, ignored);
  LogFile log;
  log.directory_ =
      UniqueFd(::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!log.directory_.valid()) return failed();
  log.stem_ = fs::path(path).stem().string();
  log.extension_ = fs::path(path).extension().string();
  log.file_ = UniqueFd(::openat(log.directory_.get(), log.name(0).c_str(), kAppend, kMode));
  struct stat info {};
  if (!log.file_.valid() || ::fstat(log.file_.get(), &info) != 0) return failed();
  log.rotate_bytes_ = rotate_bytes;
  log.keep_files_ = keep_files;
  log.is_regular_ = S_ISREG(info.st_mode);
  log.size_ = log.is_regular_ ? static_cast<uint64_t>(info.st_size) : 0;
  return log;
}

std::string LogFile::name(int number) const {
  return stem_ + (number > 0 ? "." + std::to_string(number) : "") + extension_;
}

Status LogFile::append(std::string_view line) {
  if (is_regular_ && size_ > 0 && size_ + line.size() > rotate_bytes_) rotate();
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(file_.get(), line.data() + done, line.size() - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (errno != EINTR) {
      const Status failed = Status::from_errno(errno, "write");
      if (done > 0 && is_regular_ && ::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0)
        size_ += done;
      return failed;
    }
  }
  size_ += line.size();
  return {};
}

// The next file first: a disk without room for another file keeps the ones that it has.
void LogFile::rotate() {
  const int at = directory_.get();
  const std::string next = name(0) + ".new";
  UniqueFd file(::openat(at, next.c_str(), kAppend | O_TRUNC, kMode));
  if (!file.valid()) return;
  bool is_free = true;
  for (int number = keep_files_; number > 0 && is_free; --number)
    is_free =
        ::renameat(at, name(number - 1).c_str(), at, name(number).c_str()) == 0 || errno == ENOENT;
  if (!is_free || ::renameat(at, next.c_str(), at, name(0).c_str()) != 0) {
    (void)::unlinkat(at, next.c_str(), 0);
    return;
  }
  file_ = std::move(file);
  size_ = 0;
}

}  // namespace stoker
