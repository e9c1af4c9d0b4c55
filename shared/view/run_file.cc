#include "shared/view/run_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <string_view>

#include "shared/base/directory_root.h"

namespace stoker::view {
namespace {

// O_NONBLOCK: if the path is a FIFO, open() must not wait for a writer.
constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

// `path` relative to `run_dir`.
std::string_view below(const std::string& run_dir, const std::string& path) {
  assert(path.starts_with(run_dir + "/"));
  std::string_view rest = std::string_view(path).substr(std::min(path.size(), run_dir.size()));
  rest.remove_prefix(std::min(rest.find_first_not_of('/'), rest.size()));
  return rest;
}

Result<UniqueFd> open_below(const std::string& run_dir, const std::string& path, int flags) {
  if (run_dir.empty()) return open_path(path, flags);
  const UniqueFd root(::open(run_dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return Status::from_errno(errno, "open " + run_dir);
  return open_beneath(root.get(), below(run_dir, path), flags, 0, path);
}

}  // namespace

Result<UniqueFd> open_run_file(const std::string& run_dir, const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, open_below(run_dir, path, kReadFlags));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return Status(StatusCode::kIoError, path + ": not a regular file");
  return fd;
}

Result<UniqueFd> open_run_directory(const std::string& run_dir, const std::string& path) {
  return open_below(run_dir, path, kReadFlags | O_DIRECTORY);
}

Result<std::string> read_run_file(const std::string& run_dir, const std::string& path,
                                  uint64_t max_bytes) {
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, open_run_file(run_dir, path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > max_bytes)
    return Status(StatusCode::kInvalidArgument,
                  path + ": more than " + std::to_string(max_bytes) + " bytes");
  std::string text(size, '\0');
  STOKER_RETURN_IF_ERROR(read_exactly(fd.get(), 0, std::as_writable_bytes(std::span(text)), path));
  return text;
}

std::string read_end_of_run_file(const std::string& run_dir, const std::string& path,
                                 uint64_t max_bytes) {
  const auto fd = open_run_file(run_dir, path);
  struct stat info {};
  if (!fd.ok() || ::fstat(fd->get(), &info) != 0) return "";
  const auto size = static_cast<uint64_t>(info.st_size);
  std::string text(std::min(size, max_bytes), '\0');
  const ssize_t bytes =
      ::pread(fd->get(), text.data(), text.size(), static_cast<off_t>(size - text.size()));
  text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
  if (size > max_bytes) text.erase(0, std::min(text.size(), text.find('\n') + 1));
  return text;
}

Result<std::vector<std::string>> list_run_directory(const std::string& run_dir,
                                                    const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, open_run_directory(run_dir, path));
  return list_directory("/proc/self/fd/" + std::to_string(fd.get()));
}

}  // namespace stoker::view
