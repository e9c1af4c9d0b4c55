#include "daemon/feeder/bad_sample_file.h"

#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "shared/base/log.h"

namespace stoker::feeder {
namespace {

constexpr uint64_t kMaxFileBytes = 1ull << 30;

// Of a list of an earlier release only the tickets tell.
Result<bool> belongs(std::string_view line, BadSampleFile::Position to) {
  STOKER_ASSIGN_OR_RETURN(const metrics::Row row, metrics::parse_row(line));
  const auto ticket = row.maybe_count("ticket");
  if (!ticket) return Status(Code::kCorrupt, "a line has no 'ticket'");
  if (const auto step = row.maybe_count("step")) return *step <= to.step;
  return *ticket < to.ticket;
}

struct Kept {
  std::string text;
  uint64_t lines = 0;
  uint64_t cut = 0;
};

// A torn last line is left out.
Result<Kept> kept_of(std::string_view text, BadSampleFile::Position to) {
  Kept kept;
  for (size_t newline; (newline = text.find('\n')) != std::string_view::npos;) {
    const std::string_view line = text.substr(0, newline + 1);
    STOKER_ASSIGN_OR_RETURN(const bool stays, belongs(line.substr(0, newline), to));
    if (stays) kept.text += line;
    ++(stays ? kept.lines : kept.cut);
    text.remove_prefix(newline + 1);
  }
  return kept;
}

// A damaged list must not keep a run from going on.
Result<uint64_t> set_aside(FileSystem& files, const std::string& path, const Status& why) {
  for (int n = 1; n < 1000; ++n) {
    const std::string to = path + ".archived-" + std::to_string(n);
    const Status renamed = files.rename_noreplace(path, to);
    if (renamed.code() == Code::kAlreadyExists) continue;
    if (!renamed.ok()) return renamed;
    log_warn("sample error file archived", {{"archived_to", to}, {"reason", why.message()}});
    return uint64_t{0};
  }
  return Status(Code::kIoError, path + ": too many older files beside it; remove some");
}

}  // namespace

Result<uint64_t> BadSampleFile::cut_back(FileSystem& files, const std::string& path, Position to) {
  const auto text = read_file(path, kMaxFileBytes);
  if (text.status().code() == Code::kNotFound) return uint64_t{0};
  if (text.status().code() == Code::kInvalidArgument) return set_aside(files, path, text.status());
  if (!text.ok()) return text.status();
  const auto kept = kept_of(*text, to);
  if (!kept.ok()) return set_aside(files, path, kept.status());
  if (kept->text.size() == text->size()) return kept->lines;
  STOKER_RETURN_IF_ERROR(write_file_atomically(files, path, kept->text));
  log_info("sample error records truncated",
           {{"path", path}, {"records", kept->cut}, {"step", to.step}});
  return kept->lines;
}

BadSampleFile::BadSampleFile(FileSystem& files, std::string path, uint64_t lines)
    : files_(files), path_(std::move(path)), lines_(lines) {}

void BadSampleFile::add(const metrics::Row& line) {
  if (path_.empty()) return;
  const std::lock_guard lock(mutex_);
  if (lines_ >= kMostLines) return;
  ++lines_;
  waiting_.push_back(metrics::to_json(line));
}

void BadSampleFile::write() {
  const std::lock_guard file_lock(file_mutex_);
  std::deque<std::string> lines;
  {
    const std::lock_guard lock(mutex_);
    lines.swap(waiting_);
  }
  if (lines.empty()) return;
  note_outcome(write_lines(lines));
  if (lines.empty()) return;
  const std::lock_guard lock(mutex_);
  waiting_.insert(waiting_.begin(), std::make_move_iterator(lines.begin()),
                  std::make_move_iterator(lines.end()));
}

// Takes out what is written.
Status BadSampleFile::write_lines(std::deque<std::string>& lines) {
  if (!file_) {
    STOKER_ASSIGN_OR_RETURN(file_, metrics::JsonLinesFile::open(files_, path_));
  }
  for (; !lines.empty(); lines.pop_front()) {
    STOKER_RETURN_IF_ERROR(file_->append_line(lines.front()));
    is_unsynced_ = true;
  }
  return {};
}

void BadSampleFile::flush() {
  write();
  const std::lock_guard lock(file_mutex_);
  if (!std::exchange(is_unsynced_, false)) return;
  note_outcome(sync());
}

// The directory as well: the file may be new.
Status BadSampleFile::sync() {
  STOKER_RETURN_IF_ERROR(file_->sync());
  return files_.sync_directory(std::filesystem::path(path_).parent_path());
}

void BadSampleFile::note_outcome(const Status& status) {
  if (status.ok() != fails_) return;
  fails_ = !status.ok();
  if (fails_) {
    log_error("sample error file write failed", {{"path", path_}, {"error", status.to_string()}});
  } else {
    log_info("sample error file write recovered", {{"path", path_}});
  }
}

}  // namespace stoker::feeder
