#include "shared/metrics/json_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>

#include "shared/base/log.h"
#include "shared/base/regular_file.h"

namespace stoker::metrics {
namespace {

constexpr uint64_t kBlockBytes = 256 << 10;

// Returns the lines of a file from last to first, read in blocks: a resume truncates a few lines of
// a file that can be long.
class LinesFromEnd {
 public:
  LinesFromEnd(FileSystem& files, int fd, const std::string& path, uint64_t size)
      : files_(files), fd_(fd), path_(path), start_(size) {}

  struct Line {
    uint64_t start = 0;  // offset in the file
    std::string text;    // with its newline if it has one
  };
  // Empty at the start of the file. kCorrupt: a line is longer than kMaxLineBytes.
  Result<std::optional<Line>> next() {
    size_t newline = find_start();
    while (newline == std::string::npos && start_ > 0) {
      if (buffer_.size() > kMaxLineBytes) {
        return Status(StatusCode::kCorrupt,
                      path_ + ": no line ends in the " + std::to_string(kMaxLineBytes) +
                          " bytes before offset " + std::to_string(start_ + buffer_.size()) +
                          "; this is not a metrics file");
      }
      STOKER_RETURN_IF_ERROR(prepend_block());
      newline = find_start();
    }
    if (buffer_.empty()) return std::optional<Line>();
    const size_t begin = newline == std::string::npos ? 0 : newline + 1;
    Line line{start_ + begin, buffer_.substr(begin)};
    buffer_.resize(begin);
    return std::optional<Line>(std::move(line));
  }

 private:
  // Position of the newline before the last line in the buffer.
  size_t find_start() const {
    return buffer_.size() < 2 ? std::string::npos : buffer_.rfind('\n', buffer_.size() - 2);
  }
  Status prepend_block() {
    const uint64_t bytes = std::min(kBlockBytes, start_);
    std::string block(bytes, '\0');
    STOKER_ASSIGN_OR_RETURN(
        const size_t got,
        files_.read_at(fd_, start_ - bytes, std::as_writable_bytes(std::span(block)), path_));
    if (got != bytes)
      return Status(StatusCode::kIoError, path_ + ": was truncated while being read");
    start_ -= bytes;
    buffer_.insert(0, block);
    return {};
  }

  FileSystem& files_;
  const int fd_;
  const std::string path_;
  uint64_t start_;      // offset of the buffer in the file
  std::string buffer_;  // from start_ to the end of the lines that were not returned yet
};

}  // namespace

Result<std::unique_ptr<JsonLinesFile>> JsonLinesFile::open(FileSystem& files,
                                                           const std::string& path) {
  std::unique_ptr<JsonLinesFile> file(new JsonLinesFile(files, path));
  // O_APPEND guarantees that no write modifies earlier bytes, so a reader can rely on an offset it
  // has seen.
  STOKER_ASSIGN_OR_RETURN(file->fd_,
                          files.open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK));
  STOKER_ASSIGN_OR_RETURN(const struct stat info, regular_file(file->fd_.get(), path));
  file->size_ = static_cast<uint64_t>(info.st_size);
  STOKER_RETURN_IF_ERROR(file->remove_partial_line());
  // A new file; without its name, a power failure would lose synced records.
  if (file->size_ == 0)
    STOKER_RETURN_IF_ERROR(files.sync_directory(std::filesystem::path(path).parent_path()));
  return file;
}

Status JsonLinesFile::remove_partial_line() {
  LinesFromEnd lines(files_, fd_.get(), path_, size_);
  STOKER_ASSIGN_OR_RETURN(const auto last, lines.next());
  if (!last.has_value() || last->text.back() == '\n') return {};
  log_warn("partial line removed",
           {{"path", path_}, {"offset", last->start}, {"bytes", size_ - last->start}});
  return truncate_file(last->start);
}

Status JsonLinesFile::truncate_file(uint64_t bytes) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0)
    return Status::from_errno(errno, "truncate " + path_);
  size_ = bytes;
  has_partial_record_ = false;
  return {};
}

Status JsonLinesFile::append_line(std::string_view json) {
  assert(json.find('\n') == std::string_view::npos && "a record must be a single line");
  if (has_partial_record_) STOKER_RETURN_IF_ERROR(truncate_file(size_));
  std::string line;
  line.reserve(json.size() + 1);
  line.append(json).push_back('\n');
  const Status status = files_.write(fd_.get(), std::as_bytes(std::span(line)), path_);
  if (status.ok()) {
    size_ += line.size();
    return {};
  }
  has_partial_record_ = true;  // a full disk accepts part of the line
  (void)truncate_file(size_);
  return status;
}

Result<uint64_t> JsonLinesFile::truncate_after_step(uint64_t step) {
  LinesFromEnd lines(files_, fd_.get(), path_, size_);
  uint64_t end = size_;
  uint64_t num_removed = 0;
  for (;;) {
    STOKER_ASSIGN_OR_RETURN(const auto line, lines.next());
    if (!line.has_value()) break;
    const auto record = parse_record(line->text);
    const auto line_step = record.ok() ? record->find_count("step") : std::nullopt;
    if (!line_step.has_value()) {
      return Status(StatusCode::kCorrupt,
                    path_ + ": the line at offset " + std::to_string(line->start) + ": " +
                        (record.ok() ? "no step" : record.status().message()));
    }
    if (*line_step <= step) break;
    end = line->start;
    ++num_removed;
  }
  if (num_removed > 0) STOKER_RETURN_IF_ERROR(truncate_file(end));
  return num_removed;
}

Status for_each_record(
    const std::string& path,
    const std::function<Status(const MetricsRecord& record, uint64_t line)>& on_record) {
  uint64_t number = 0;
  return for_each_line(path, kMaxLineBytes, [&](const FileLine& line) -> Status {
    if (!line.is_complete) return {};
    ++number;
    const auto record = parse_record(line.text);
    if (!record.ok())
      return Status(StatusCode::kCorrupt,
                    path + ":" + std::to_string(number) + ": " + record.status().message());
    return on_record(*record, number);
  });
}

Result<RecordsRead> read_records(const std::string& path) {
  RecordsRead read;
  STOKER_RETURN_IF_ERROR(for_each_record(path, [&](const MetricsRecord& record, uint64_t) {
    read.records.push_back(record);
    return Status();
  }));
  STOKER_RETURN_IF_ERROR(for_each_line(path, 0, [&](const FileLine& line) {
    read.has_partial_line = !line.is_complete;
    return Status();
  }));
  return read;
}

}  // namespace stoker::metrics
