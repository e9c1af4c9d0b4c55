#include "daemon/supervisor/sample_error_file.h"

#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "shared/base/log.h"

namespace stoker::supervisor {
namespace {

constexpr uint64_t kMaxFileBytes = 1ull << 30;

// Of a list of an earlier release only the tickets tell.
Result<bool> belongs(std::string_view line, SampleErrorFile::Position to) {
  STOKER_ASSIGN_OR_RETURN(const metrics::MetricsRecord row, metrics::parse_record(line));
  const auto ticket = row.find_count("ticket");
  if (!ticket) return Status(StatusCode::kCorrupt, "a line has no 'ticket'");
  if (const auto step = row.find_count("step")) return *step <= to.step;
  return *ticket < to.ticket;
}

struct Parsed {
  std::string text;
  uint64_t lines = 0;
  uint64_t cut = 0;
};

// A torn last line is left out.
Result<Parsed> parse_lines(std::string_view text, SampleErrorFile::Position to) {
  Parsed parsed;
  for (size_t newline; (newline = text.find('\n')) != std::string_view::npos;) {
    const std::string_view line = text.substr(0, newline + 1);
    STOKER_ASSIGN_OR_RETURN(const bool stays, belongs(line.substr(0, newline), to));
    if (stays) parsed.text += line;
    ++(stays ? parsed.lines : parsed.cut);
    text.remove_prefix(newline + 1);
  }
  return parsed;
}

// A damaged list must not keep a run from going on.
Result<uint64_t> archive(FileSystem& files, const std::string& path, const Status& why) {
  for (int n = 1; n < 1000; ++n) {
    const std::string to = path + ".archived-" + std::to_string(n);
    const Status renamed = files.rename_noreplace(path, to);
    if (renamed.code() == StatusCode::kAlreadyExists) continue;
    if (!renamed.ok()) return renamed;
    log_warn("sample error file archived", {{"archived_to", to}, {"reason", why.message()}});
    return uint64_t{0};
  }
  return Status(StatusCode::kIoError, path + ": too many older files beside it; remove some");
}

}  // namespace

Result<uint64_t> SampleErrorFile::truncate_after(FileSystem& files, const std::string& path,
                                                 Position to) {
  const auto text = read_file(path, kMaxFileBytes);
  if (text.status().code() == StatusCode::kNotFound) return uint64_t{0};
  if (text.status().code() == StatusCode::kInvalidArgument)
    return archive(files, path, text.status());
  if (!text.ok()) return text.status();
  const auto parsed = parse_lines(*text, to);
  if (!parsed.ok()) return archive(files, path, parsed.status());
  if (parsed->text.size() == text->size()) return parsed->lines;
  STOKER_RETURN_IF_ERROR(write_file_atomically(files, path, parsed->text));
  log_info("sample error records truncated",
           {{"path", path}, {"records", parsed->cut}, {"step", to.step}});
  return parsed->lines;
}

SampleErrorFile::SampleErrorFile(FileSystem& files, std::string path, uint64_t lines)
    : files_(files), path_(std::move(path)), lines_(lines) {}

void SampleErrorFile::add(const metrics::MetricsRecord& line) {
  if (path_.empty()) return;
  const std::lock_guard lock(mutex_);
  if (lines_ >= kMaxLines) return;
  ++lines_;
  waiting_.push_back(metrics::to_json(line));
}

void SampleErrorFile::write() {
  const std::lock_guard file_lock(file_mutex_);
  std::deque<std::string> lines;
  {
    const std::lock_guard lock(mutex_);
    lines.swap(waiting_);
  }
  if (lines.empty()) return;
  record_write_status(write_lines(lines));
  if (lines.empty()) return;
  const std::lock_guard lock(mutex_);
  waiting_.insert(waiting_.begin(), std::make_move_iterator(lines.begin()),
                  std::make_move_iterator(lines.end()));
}

// Takes out what is written.
Status SampleErrorFile::write_lines(std::deque<std::string>& lines) {
  if (!file_) {
    STOKER_ASSIGN_OR_RETURN(file_, metrics::JsonLinesFile::open(files_, path_));
  }
  for (; !lines.empty(); lines.pop_front()) {
    STOKER_RETURN_IF_ERROR(file_->append_line(lines.front()));
    is_unsynced_ = true;
  }
  return {};
}

void SampleErrorFile::flush() {
  write();
  const std::lock_guard lock(file_mutex_);
  if (!std::exchange(is_unsynced_, false)) return;
  record_write_status(sync());
}

// The directory as well: the file may be new.
Status SampleErrorFile::sync() {
  STOKER_RETURN_IF_ERROR(file_->sync());
  return files_.sync_directory(std::filesystem::path(path_).parent_path());
}

void SampleErrorFile::record_write_status(const Status& status) {
  if (status.ok() != is_failing_) return;
  is_failing_ = !status.ok();
  if (is_failing_) {
    log_error("sample error file write failed", {{"path", path_}, {"error", status.to_string()}});
  } else {
    log_info("sample error file write recovered", {{"path", path_}});
  }
}

}  // namespace stoker::supervisor
