#include "shared/metrics/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "shared/metrics/tensorboard_messages.h"

namespace stoker::metrics {
namespace {

constexpr size_t kMaxBufferBytes = 1 << 20;
constexpr std::string_view kNamePrefix = "events.out.tfevents.";
constexpr size_t kTimeDigits = 10;  // sufficient until the year 2286

struct PngSize {
  uint32_t width = 0;
  uint32_t height = 0;
};

// Parses the PNG header, which every PNG file starts with.
std::optional<PngSize> parse_png_size(std::string_view png) {
  constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
  if (!png.starts_with(kSignature) || png.size() < kSignature.size() + 8) return std::nullopt;
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(png[i]);
    return value;
  };
  return PngSize{number(kSignature.size()), number(kSignature.size() + 4)};
}

// Letters, digits, '-' and '_', because dots separate the parts of the file name.
std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "host";
  std::string host = name;
  for (char& c : host)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') c = '-';
  return host.empty() ? "host" : host;
}

// TensorBoard reads the files of a directory in the order of their names. The time in a new name
// must be later than in all existing names, even if the wall clock was set back.
Result<int64_t> next_free_second(const std::string& directory, int64_t now) {
  STOKER_ASSIGN_OR_RETURN(const auto names, list_directory(directory));
  int64_t second = now;
  for (const std::string& name : names) {
    if (!name.starts_with(kNamePrefix)) continue;
    const char* first = name.data() + kNamePrefix.size();
    int64_t name_second = 0;
    const auto [end, error] = std::from_chars(first, name.data() + name.size(), name_second);
    if (error != std::errc() || end != first + kTimeDigits) continue;
    second = std::max(second, name_second + 1);
  }
  return second;
}

}  // namespace

Result<std::unique_ptr<EventFile>> EventFile::create(FileSystem& files, Clock& clock,
                                                     const std::string& directory,
                                                     std::optional<uint64_t> maybe_after_step) {
  STOKER_RETURN_IF_ERROR(make_directories(files, directory));
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(clock.wall().time_since_epoch());
  STOKER_ASSIGN_OR_RETURN(const int64_t second, next_free_second(directory, now.count()));
  char digits[24];
  std::snprintf(digits, sizeof digits, "%010lld", static_cast<long long>(second));
  const std::string name = std::string(kNamePrefix) + digits + "." + host_name() + "." +
                           std::to_string(::getpid()) + ".0";

  std::unique_ptr<EventFile> file(new EventFile(files, clock, join_path(directory, name)));
  STOKER_ASSIGN_OR_RETURN(
      file->fd_, files.open(file->path_, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW));
  STOKER_RETURN_IF_ERROR(files.sync_directory(directory));
  // Also the names of the directory (train, or a dataset) and of the one that it is in (tensorboard,
  // or tensorboard/eval): no other file there is synced. One that this user cannot open is older.
  const std::filesystem::path parent = std::filesystem::path(directory).parent_path();
  for (const auto& changed : {parent, parent.parent_path()})
    (void)files.sync_directory(changed.empty() ? "." : changed.string());
  file->add_record(encode_file_version(file->now()));
  if (maybe_after_step.has_value())
    file->add_record(encode_session_start(file->now(), *maybe_after_step + 1));
  STOKER_RETURN_IF_ERROR(file->flush());
  return file;
}

EventFile::~EventFile() { (void)flush(); }

double EventFile::now() const {
  return std::chrono::duration<double>(clock_.wall().time_since_epoch()).count();
}

void EventFile::add_record(std::string_view event) {
  const auto fits = [&] { return buffer_.size() + event.size() <= kMaxBufferBytes; };
  if (!fits() && !has_failed_) (void)flush();
  if (!fits()) {
    ++dropped_;
    return;
  }
  buffer_ += frame_record(event);
}

void EventFile::add_scalar(std::string_view tag, uint64_t step, double value,
                           std::string_view description) {
  add_record(encode_scalar(now(), step, tag, static_cast<float>(value), description));
}

void EventFile::add_text(std::string_view tag, uint64_t step, std::string_view text) {
  add_record(encode_text(now(), step, tag, text));
}

void EventFile::add_image(std::string_view tag, uint64_t step, std::string_view png) {
  const auto size = parse_png_size(png);
  if (!size || png.size() > kMaxImageBytes) {
    ++dropped_;
    return;
  }
  add_record(encode_image(now(), step, tag, png, size->width, size->height));
}

void EventFile::add_histogram(std::string_view tag, uint64_t step, const TensorSummary& summary) {
  add_record(encode_histogram(now(), step, tag, summary));
}

void EventFile::add_pr_curve(std::string_view tag, uint64_t step,
                             std::span<const uint64_t> true_positives,
                             std::span<const uint64_t> false_positives) {
  add_record(encode_pr_curve(now(), step, tag, true_positives, false_positives));
}

void EventFile::add_graph(std::string_view graph) { add_record(encode_graph_def(now(), graph)); }

void EventFile::add_hparams(std::string_view tag, std::string_view content) {
  add_record(encode_plugin_content(now(), tag, "hparams", content));
}

void EventFile::add_layout(const std::vector<ChartCategory>& categories) {
  add_record(encode_layout(now(), categories));
}

Status EventFile::flush() {
  if (buffer_.empty()) return {};
  has_failed_ = true;
  // A partial record after a failed write would make the rest of the file unreadable, so it is
  // truncated first.
  if (has_partial_record_) {
    if (::ftruncate(fd_.get(), static_cast<off_t>(written_)) != 0)
      return Status::from_errno(errno, "truncate " + path_);
    has_partial_record_ = false;
  }
  const Status status = files_.write(fd_.get(), std::as_bytes(std::span(buffer_)), path_);
  if (!status.ok()) {
    has_partial_record_ = ::ftruncate(fd_.get(), static_cast<off_t>(written_)) != 0;
    return status;
  }
  written_ += buffer_.size();
  has_failed_ = false;
  std::string().swap(buffer_);  // clear() would retain the memory of a slow disk's backlog
  return {};
}

}  // namespace stoker::metrics
