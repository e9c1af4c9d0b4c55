#include "daemon/supervisor/sample_error_log.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string_view>

#include "shared/base/log.h"
#include "shared/feed/worker_process.h"
#include "shared/ring/ring_layout.h"

namespace stoker::supervisor {
namespace {

constexpr uint64_t kMaxFileBytes = 1ull << 30;

// Lists of earlier releases contain only tickets.
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

// A partial last line is ignored.
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

// A corrupt list must not prevent a run from continuing.
Result<uint64_t> archive(FileSystem& files, const std::string& path, const Status& why) {
  for (int n = 1; n < 1000; ++n) {
    const std::string to = path + ".archived-" + std::to_string(n);
    const Status renamed = files.rename_noreplace(path, to);
    if (renamed.code() == StatusCode::kAlreadyExists) continue;
    if (!renamed.ok()) return renamed;
    log_warn("sample error file archived", {{"archived_to", to}, {"reason", why.message()}});
    return uint64_t{0};
  }
  return Status(StatusCode::kIoError, path + ": too many archived files; remove some");
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

// Removes the lines that were written from `lines`.
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

// Includes the directory because the file can be new.
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

namespace {

constexpr uint64_t kLinesInFull = 10;  // further errors are summarized once a second
constexpr auto kLogEvery = std::chrono::seconds(1);
constexpr size_t kMaxSeen = 1 << 18;    // exceeds the slots of a ring unless reports are invalid
constexpr uint64_t kMinSamples = 1000;  // the rate over fewer samples is not meaningful …
constexpr uint64_t kMinErrors = 10;     // … unless there are at least this many errors

std::string to_message(const ring::SampleError& error, const data::SampleSource& source) {
  std::string location = source.file.empty() ? ""
                                             : " (" + source.file + " at offset " +
                                                   std::to_string(source.offset) + ")";
  return "sample " + std::to_string(error.sample) + location + ": " + error.reason;
}

bool is_lost_access(StatusCode code) {
  return feed::as_lost_access(Status(code, "")).code() == StatusCode::kIoError;
}

std::string format_rate(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

}  // namespace

SampleErrorLog::SampleErrorLog(const config::FeedConfig& feed, const data::Dataset* maybe_dataset,
                               uint64_t batch, const SampleErrorHistory& before,
                               SampleErrorFile& file, const Clock& clock)
    : feed_(feed),
      maybe_dataset_(maybe_dataset),
      batch_(batch),
      before_(before),
      file_(file),
      clock_(clock) {}

Status SampleErrorLog::add_reports(const std::vector<ring::SampleError>& reports,
                                   const ring::RingCounters& counters) {
  for (const auto& error : reports) {
    if (!seen_.emplace(error.ticket, error.sample).second) continue;
    if (seen_.size() > kMaxSeen) seen_.erase(seen_.begin());
    ++found_;
    // The index is that of a record of a stream, or comes from a process that is not trusted.
    const bool is_known = maybe_dataset_ != nullptr && error.sample < maybe_dataset_->size();
    const auto source = is_known ? maybe_dataset_->source(error.sample) : data::SampleSource{};
    last_ = to_message(error, source);
    last_file_ = source.file;
    last_code_ = is_lost_access(error.code) ? StatusCode::kIoError : StatusCode::kCorrupt;
    log(error, source);
    list(error, source);
  }
  lost_ = counters.lost_reports;
  forget_used(counters.next_ticket);
  log_suppressed();
  if (limit_status_.ok()) limit_status_ = check_error_rate(counters);
  return limit_status_;
}

// Consumed tickets are not reported again. A step that consumes several tickets can still be rolled
// back.
void SampleErrorLog::forget_used(uint64_t next_ticket) {
  const uint64_t used = next_ticket - std::min(next_ticket, before_.tickets_a_step);
  seen_.erase(seen_.begin(), seen_.lower_bound({used, 0}));
}

uint64_t SampleErrorLog::count_before(uint64_t ticket) const {
  return count() -
         static_cast<uint64_t>(std::distance(seen_.lower_bound({ticket, 0}), seen_.end()));
}

// The ticket also comes from another process.
uint64_t SampleErrorLog::step_at(uint64_t ticket) const {
  if (ticket < before_.ticket) return before_.step;
  const uint64_t known = std::min(ticket, ring::kMaxTicket);
  return before_.step + (known - std::min(known, before_.ticket)) / before_.tickets_a_step + 1;
}

void SampleErrorLog::log(const ring::SampleError& error, const data::SampleSource& source) {
  if (found_ > kLinesInFull) {
    ++suppressed_;
    return;
  }
  last_line_ = clock_.monotonic();
  log_warn("sample read failed", {{"ticket", error.ticket},
                                  {"sample", error.sample},
                                  {"path", source.file},
                                  {"offset", source.offset},
                                  {"error", error.reason}});
}

void SampleErrorLog::log_suppressed() {
  const auto now = clock_.monotonic();
  if (suppressed_ == 0 || now - last_line_ < kLogEvery) return;
  log_warn("sample read failures suppressed",
           {{"count", suppressed_}, {"total", count()}, {"last", last_}, {"path", file_.path()}});
  suppressed_ = 0;
  last_line_ = now;
}

void SampleErrorLog::list(const ring::SampleError& error, const data::SampleSource& source) {
  file_.add(metrics::MetricsRecord()
                .add("step", step_at(error.ticket))
                .add("ticket", error.ticket)
                .add("sample", error.sample)
                .add("path", source.file)
                .add("offset", source.offset)
                .add("error", to_string(error.code))
                .add("message", error.reason));
}

std::string SampleErrorLog::describe_lost_folder(const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path missing(file), parent = missing.parent_path();
  while (!parent.empty() && parent != missing && !fs::exists(parent, error)) {
    missing = parent;
    parent = missing.parent_path();
  }
  // The folder that a file system was mounted on remains.
  if (parent.has_filename() && fs::is_empty(parent, error) && !error)
    return parent.string() + " is empty; is it mounted?";
  if (missing == fs::path(file) || fs::exists(missing, error)) return "";
  return missing.string() + " does not exist any more; is it mounted?";
}

bool SampleErrorLog::exceeds_limit(const ErrorRate& share) const {
  if (share.samples < kMinSamples && share.errors < kMinErrors) return false;
  return static_cast<double>(share.errors) >
         feed_.max_sample_error_rate * static_cast<double>(share.samples);
}

// The rate over the whole run is checked so that interrupted and uninterrupted runs are treated
// alike. The rate since this start is also checked, so that data repaired after such an end is not
// judged by earlier errors.
Status SampleErrorLog::check_error_rate(const ring::RingCounters& counters) const {
  // The batches that were published, and those being read: as many as the errors show.
  const auto rate = [](uint64_t errors, uint64_t samples) {
    return ErrorRate{errors, std::max(errors, samples)};
  };
  const ErrorRate now = rate(found_ + lost_, (counters.published + 1) * batch_);
  const ErrorRate all =
      rate(before_.count + now.errors, (before_.ticket + counters.published + 1) * batch_);
  if (now.errors == 0) return {};
  if (feed_.on_sample_error == config::OnSampleError::kFail)
    return Status(last_code_, "data.train cannot be read: " + last_ +
                                  "; repair or remove it, or set feed.on_sample_error: skip");
  if (!exceeds_limit(now) || !exceeds_limit(all)) return {};
  const std::string lost =
      last_code_ == StatusCode::kIoError ? describe_lost_folder(last_file_) : std::string();
  return Status(last_code_, "data.train: " + lost + (lost.empty() ? "" : " ") +
                                std::to_string(all.errors) + " of " + std::to_string(all.samples) +
                                " samples cannot be read, more than feed.max_sample_error_rate = " +
                                format_rate(feed_.max_sample_error_rate) + "; the last: " + last_ +
                                "; all are listed in " + file_.path());
}

}  // namespace stoker::supervisor
