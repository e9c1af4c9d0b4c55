#include "shared/view/log_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <vector>

#include "shared/base/regular_file.h"
#include "shared/base/utf8.h"

namespace stoker::view {
namespace {

constexpr uint64_t kBlockBytes = 256 << 10;
// That are searched for the first line to show; a sparse file can have any size.
constexpr uint64_t kMaxSearchedBytes = uint64_t{1} << 30;

Result<size_t> read_at(int fd, uint64_t offset, char* bytes, size_t size, const std::string& path) {
  const ssize_t bytes_read = ::pread(fd, bytes, size, static_cast<off_t>(offset));
  if (bytes_read < 0) return Status::from_errno(errno, "read " + path);
  return static_cast<size_t>(bytes_read);
}

// O_NONBLOCK: if the path is a FIFO, open() must not wait for a writer.
Result<UniqueFd> open_log(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd,
                          default_file_system().open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  STOKER_RETURN_IF_ERROR(regular_file(fd.get(), path).status());
  return fd;
}

// Offset of the first of the last `lines` lines of a file of `size` bytes, of which the last kMaxSearchedBytes
// are searched. An unterminated last line counts.
Result<uint64_t> find_begin(int fd, uint64_t size, uint64_t lines, const std::string& path) {
  if (lines == 0) return size;
  std::vector<char> block(kBlockBytes);
  uint64_t num_lines = 0;
  const uint64_t first = size - std::min(size, kMaxSearchedBytes);
  for (uint64_t end = size; end > first;) {
    const uint64_t begin = end - std::min(end - first, kBlockBytes);
    STOKER_ASSIGN_OR_RETURN(const size_t bytes_read,
                            read_at(fd, begin, block.data(), end - begin, path));
    for (size_t i = bytes_read; i-- > 0;) {
      if (block[i] != '\n' || begin + i + 1 == size) continue;  // terminates the last line
      if (++num_lines == lines) return begin + i + 1;
    }
    end = begin;
  }
  return first;
}

constexpr std::string_view kJsonTime = "{\"time\":\"";
constexpr size_t kTimeBytes = 20;  // "2026-01-31T12:00:00."

// The time at the start of a line, in text or JSON; empty: it has none.
std::string_view time_of(std::string_view line) {
  if (line.starts_with(kJsonTime)) line.remove_prefix(kJsonTime.size());
  const size_t end = line.find('Z');
  const bool is_time = line.size() > kTimeBytes && line[4] == '-' && line[10] == 'T' &&
                       line[13] == ':' && end != std::string_view::npos && end >= kTimeBytes - 1;
  return is_time ? line.substr(0, end) : std::string_view();
}

}  // namespace

std::string log_path(const run::RunLayout& layout, bool evaluator, int rank) {
  if (evaluator) return layout.evaluator_log();
  return rank == 0 ? layout.trainer_log() : run::RunLayout(layout.rank_dir(rank)).trainer_log();
}

// Copies and backups of a run can be without its logs.
Status no_log(const run::RunLayout& layout, bool evaluator, int rank,
              const std::string& stokerd_reason) {
  std::string reason = stokerd_reason;
  std::error_code error;
  if (evaluator)
    reason = "stoker-eval has not been started on this run, or its log was removed or not copied";
  else if (rank > 0 && !std::filesystem::exists(layout.rank_dir(rank), error))
    reason = "the run directory has no rank " + std::to_string(rank);
  return Status(StatusCode::kNotFound,
                printable(log_path(layout, evaluator, rank)) + ": no such log; " + reason);
}

std::string merge_by_time(const std::vector<LogPart>& parts) {
  struct Line {
    std::string_view time, source, text;
  };
  std::vector<Line> lines;
  for (const LogPart& part : parts) {
    std::string_view time;
    for (std::string_view rest = part.text; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      // Never before the line above, whatever the clock did.
      time = std::max(time, time_of(line));
      lines.push_back({.time = time, .source = part.source, .text = line});
    }
  }
  std::ranges::stable_sort(lines, {}, &Line::time);
  std::string merged;
  for (const Line& line : lines)
    merged.append(line.source).append("  ").append(line.text).append("\n");
  return merged;
}

std::string read_end(const std::string& path, uint64_t max_bytes) {
  const auto fd = open_log(path);
  struct stat info {};
  if (!fd.ok() || ::fstat(fd->get(), &info) != 0) return "";
  const auto size = static_cast<uint64_t>(info.st_size);
  std::string text(std::min(size, max_bytes), '\0');
  const auto bytes = read_at(fd->get(), size - text.size(), text.data(), text.size(), path);
  text.resize(bytes.ok() ? *bytes : 0);
  if (size > max_bytes) text.erase(0, std::min(text.size(), text.find('\n') + 1));
  return text;
}

Result<LogTail> LogTail::open(const std::string& path, uint64_t lines) {
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, open_log(path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  LogTail tail(path, std::move(fd));
  STOKER_ASSIGN_OR_RETURN(
      tail.offset_, find_begin(tail.fd_.get(), static_cast<uint64_t>(info.st_size), lines, path));
  return tail;
}

Result<std::string> LogTail::read_rest() const {
  std::string text(kBlockBytes, '\0');
  STOKER_ASSIGN_OR_RETURN(const size_t bytes_read,
                          read_at(fd_.get(), offset_, text.data(), text.size(), path_));
  text.resize(bytes_read);
  return text;
}

Result<std::string> LogTail::read_lines() {
  STOKER_ASSIGN_OR_RETURN(std::string text, read_rest());
  const size_t end = text.rfind('\n') + 1;  // npos + 1 is 0
  if (end > 0 || text.size() < kBlockBytes) text.resize(end);
  offset_ += text.size();
  return text;
}

Result<bool> LogTail::is_rotated() {
  struct stat path_info {};
  struct stat fd_info {};
  if (::stat(path_.c_str(), &path_info) != 0) {
    // Between the rename of the old file and the creation of the new one.
    if (errno == ENOENT) return false;
    return Status::from_errno(errno, "stat " + path_);
  }
  if (::fstat(fd_.get(), &fd_info) != 0) return Status::from_errno(errno, "stat " + path_);
  if (path_info.st_ino != fd_info.st_ino || path_info.st_dev != fd_info.st_dev) return true;
  if (static_cast<uint64_t>(fd_info.st_size) < offset_) offset_ = 0;  // truncated and rewritten
  return false;
}

Result<std::string> LogTail::read_more() {
  STOKER_ASSIGN_OR_RETURN(const bool rotated, is_rotated());
  // Read the rest of a rotated file first; nothing is appended to it any more.
  STOKER_ASSIGN_OR_RETURN(std::string text, read_lines());
  if (!text.empty() || !rotated) return text;
  STOKER_ASSIGN_OR_RETURN(std::string incomplete, read_rest());
  if (!incomplete.empty()) incomplete += '\n';
  STOKER_ASSIGN_OR_RETURN(fd_, open_log(path_));
  offset_ = 0;
  STOKER_ASSIGN_OR_RETURN(text, read_lines());
  return incomplete + text;
}

bool LogTail::skip_to_last(uint64_t bytes) {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return false;
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size <= bytes || size - bytes <= offset_) return false;
  offset_ = size - bytes;
  return true;
}

}  // namespace stoker::view
