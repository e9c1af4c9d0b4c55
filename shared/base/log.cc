#include "shared/base/log.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <boost/json.hpp>
#include <spdlog/async.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <systemd/sd-journal.h>

#include "shared/base/log_file.h"
#include "shared/base/thread_registry.h"
#include "shared/base/utf8.h"

namespace stoker {
namespace {

constexpr size_t kQueueLines = 8192;
constexpr std::chrono::seconds kDropReportInterval{1};
constexpr const char* kTimePattern = "%Y-%m-%dT%H:%M:%S.%eZ";

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

struct LevelNames {
  std::string_view padded;  // so that the events of a log are aligned
  std::string_view name;
  std::string_view priority;  // of syslog
};
LevelNames level_names(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::debug:
      return {"debug   ", "debug", "7"};
    case spdlog::level::warn:
      return {"warning ", "warning", "4"};
    case spdlog::level::err:
      return {"error   ", "error", "3"};
    default:
      return {"info    ", "info", "6"};
  }
}

bool needs_quotes(std::string_view value) {
  if (value.empty()) return true;
  for (const char c : value)
    if (c == ' ' || c == '"' || c == '=' || c == '\\') return true;
  return false;
}

void append_hex(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned char>(byte));
    out += hex;
  }
}

// The rest of `value` without its next character, which can be an invalid byte.
struct NextCharacter {
  std::string_view bytes;
  bool is_valid = false;
};
NextCharacter take_character(std::string_view& value) {
  const size_t valid_bytes = utf8_character_bytes(value);
  const std::string_view character = value.substr(0, valid_bytes > 0 ? valid_bytes : 1);
  value.remove_prefix(character.size());
  return {character, valid_bytes > 0};
}

void append_escaped(std::string& out, std::string_view value) {
  while (!value.empty()) {
    const auto [character, is_valid] = take_character(value);
    if (character == "\"" || character == "\\") {
      out += '\\';
      out += character;
    } else if (character == "\n") {
      out += "\\n";
    } else if (!is_valid || is_control_character(character)) {
      append_hex(out, character);
    } else {
      out += character;
    }
  }
}

void append_field(std::string& out, std::string_view key, std::string_view value) {
  out += ' ';
  out += key;
  out += '=';
  const bool quoted = needs_quotes(value);
  if (quoted) out += '"';
  append_escaped(out, value);
  if (quoted) out += '"';
}

// A JSON string. Control characters are escaped by Boost.JSON; those above U+007F, which a terminal
// can interpret, and bytes that are not UTF-8 are written as in text.
std::string to_json_string(std::string_view value) {
  std::string printable;
  while (!value.empty()) {
    const auto [character, is_valid] = take_character(value);
    const bool is_ascii = is_valid && character.size() == 1;
    if (!is_valid || (!is_ascii && is_control_character(character)))
      append_hex(printable, character);
    else
      printable += character;
  }
  return boost::json::serialize(boost::json::string(printable));
}

// ---- Events in the queue of spdlog: the name and the fields, as `text or not, size, bytes` each.

struct QueuedField {
  std::string_view key = {};
  std::string_view value = {};
  bool is_text = true;
};

void append_part(std::string& out, std::string_view bytes, bool is_text) {
  const auto size = static_cast<uint32_t>(bytes.size());
  out += is_text ? '\1' : '\0';
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out += bytes;
}

std::string encode(std::string_view event, Fields fields) {
  std::string out;
  append_part(out, event, true);
  for (const Field& field : fields) {
    append_part(out, field.key, true);
    append_part(out, field.value, field.is_text);
  }
  return out;
}

class QueuedEvent {
 public:
  explicit QueuedEvent(std::string_view encoded) : rest_(encoded) { name_ = next().value; }
  std::string_view name() const { return name_; }
  bool has_field() const { return !rest_.empty(); }
  QueuedField next_field() {
    const std::string_view key = next().value;
    QueuedField field = next();
    field.key = key;
    return field;
  }

 private:
  QueuedField next() {
    uint32_t size = 0;
    std::memcpy(&size, rest_.data() + 1, sizeof size);
    const QueuedField part{.value = rest_.substr(1 + sizeof size, size),
                           .is_text = rest_[0] == '\1'};
    rest_.remove_prefix(1 + sizeof size + size);
    return part;
  }

  std::string_view rest_;
  std::string_view name_;
};

std::string_view payload_of(const spdlog::details::log_msg& message) {
  return {message.payload.data(), message.payload.size()};
}

std::string to_text(std::string_view encoded) {
  QueuedEvent event(encoded);
  std::string line(event.name());
  while (event.has_field()) {
    const QueuedField field = event.next_field();
    append_field(line, field.key, field.value);
  }
  return line;
}

class EventFormatter final : public spdlog::formatter {
 public:
  explicit EventFormatter(LogFormat format) : format_(format) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::string line = format_ == LogFormat::kJson ? to_json(message) : to_text_line(message);
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<EventFormatter>(format_);
  }

 private:
  std::string time_of(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t out;
    time_.format(message, out);
    return {out.data(), out.size()};
  }
  std::string to_text_line(const spdlog::details::log_msg& message) {
    return time_of(message) + " " + std::string(level_names(message.level).padded) +
           to_text(payload_of(message)) + "\n";
  }
  std::string to_json(const spdlog::details::log_msg& message) {
    QueuedEvent event(payload_of(message));
    std::string line = "{\"time\":\"" + time_of(message) + "\",\"level\":\"";
    line += level_names(message.level).name;
    line += "\",\"event\":" + to_json_string(event.name());
    while (event.has_field()) {
      const QueuedField field = event.next_field();
      line += "," + to_json_string(field.key) + ":";
      line += field.is_text ? to_json_string(field.value) : std::string(field.value);
    }
    return line + "}\n";
  }

  const LogFormat format_;
  spdlog::pattern_formatter time_{kTimePattern, spdlog::pattern_time_type::utc, ""};
};

void write_to_stderr(std::string_view text) {
  // One write() per line. Errors of a closed or full standard error are ignored.
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
}

// The event of lines that are not in the log.
std::string encode_drops(uint64_t count, uint64_t total, std::string_view reason) {
  constexpr LogEvent<LogLevel::kWarn> kDropped = "log lines dropped";
  const Field fields[] = {{"count", count}, {"total", total}, {"reason", reason}};
  return encode(kDropped.name(), fields);
}

// The first line after lines that could not be written says how many.
class FileSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit FileSink(LogFile file) : file_(std::move(file)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t lines;
    if (num_lost_ > 0) {
      const std::string drops = encode_drops(num_lost_, total_lost_, reason_);
      formatter_->format({"", spdlog::level::warn, spdlog::string_view_t(drops)}, lines);
    }
    formatter_->format(message, lines);
    const Status written = file_.append({lines.data(), lines.size()});
    if (written.ok()) {
      num_lost_ = 0;
      return;
    }
    ++num_lost_;
    ++total_lost_;
    reason_ = written.message();
  }
  void flush_() override {}

 private:
  LogFile file_;
  uint64_t num_lost_ = 0, total_lost_ = 0;
  std::string reason_;
};

// Standard error with a progress line at the bottom.
class ConsoleSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // Shown with the next log line if the terminal does not accept it now.
  void set_progress(std::string_view text) {
    const std::unique_lock lock(mutex_, std::try_to_lock);  // a stopped terminal blocks a log line
    if (!lock.owns_lock() || text == progress_) return;
    progress_ = text;
    pollfd terminal{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    if (::poll(&terminal, 1, 0) == 1) write_to_stderr("\r\033[K" + progress_);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string out = progress_.empty() ? std::string() : std::string("\r\033[K");
    out.append(line.data(), line.size());
    out += progress_;
    write_to_stderr(out);
  }
  void flush_() override {}

 private:
  std::string progress_;  // guarded by mutex_ of the base class
};

// Whether standard error is a stream of systemd's journal.
bool is_journal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat file {};
  return stream != nullptr && ::fstat(STDERR_FILENO, &file) == 0 &&
         std::to_string(file.st_dev) + ":" + std::to_string(file.st_ino) == stream;
}

// Entries with the fields STOKER_EVENT and STOKER_<FIELD>.
class JournalSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::vector<std::string> fields = {
        "MESSAGE=" + to_text(payload_of(message)),
        "PRIORITY=" + std::string(level_names(message.level).priority)};
    QueuedEvent event(payload_of(message));
    fields.push_back("STOKER_EVENT=" + std::string(event.name()));
    while (event.has_field()) {
      const QueuedField field = event.next_field();
      fields.push_back("STOKER_" + journal_name(field.key) + "=" + std::string(field.value));
    }
    std::vector<iovec> parts;
    for (std::string& field : fields) parts.push_back({field.data(), field.size()});
    // A journal that is gone is no reason to stop.
    (void)sd_journal_sendv(parts.data(), static_cast<int>(parts.size()));
  }
  void flush_() override {}

 private:
  static std::string journal_name(std::string_view key) {
    std::string name;
    for (const char c : key)
      name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return name;
  }
};

struct Log {
  std::mutex mutex;
  std::shared_ptr<spdlog::details::thread_pool> pool;
  std::shared_ptr<ConsoleSink> console;
  std::shared_ptr<spdlog::logger> logger;
  std::map<uint64_t, std::shared_ptr<const EventListener>> listeners;  // by EventListening::id_
  uint64_t next_listener = 1;
  std::atomic<bool> has_listeners{false};  // written under mutex
  // Written by the thread that logs the number.
  std::atomic<uint64_t> reported_drops{0};
  std::atomic<std::chrono::steady_clock::time_point> next_drop_report{};
};

Log& state() {
  // Never destroyed, because threads can log while the program exits.
  static Log* const log = new Log;
  return *log;
}

// Called without the lock, so that a listener can be added or removed meanwhile.
void call_listeners(LogLevel level, std::string_view event, Fields fields) {
  if (!state().has_listeners.load()) return;
  std::vector<std::shared_ptr<const EventListener>> listeners;
  {
    const std::lock_guard lock(state().mutex);
    for (const auto& [id, listener] : state().listeners) listeners.push_back(listener);
  }
  for (const auto& listener : listeners) (*listener)(level, event, fields);
}

std::shared_ptr<spdlog::logger> current_logger() {
  const std::lock_guard lock(state().mutex);
  return state().logger;
}

// At most once a second, unless `always`: each report takes the place of another line.
bool report_drops(spdlog::logger& logger, bool always) {
  Log& log = state();
  if (log.pool->overrun_counter() == log.reported_drops.load()) return false;
  const auto now = std::chrono::steady_clock::now();
  auto next = log.next_drop_report.load();
  const bool is_due = always || now >= next;
  if (!is_due || !log.next_drop_report.compare_exchange_strong(next, now + kDropReportInterval))
    return false;
  const uint64_t drops = log.pool->overrun_counter();
  const uint64_t reported = log.reported_drops.exchange(drops);
  if (drops <= reported) return false;
  // A report can be dropped, too, but not the total of the last one.
  logger.warn(spdlog::string_view_t(
      encode_drops(drops - reported, drops, "the log's disk or terminal is too slow")));
  return true;
}

void write_event(LogLevel level, std::string_view event, Fields fields) {
  const auto logger = current_logger();
  if (!logger) {
    if (level >= LogLevel::kInfo) write_to_stderr(format_event(event, fields) + "\n");
    return;
  }
  if (!logger->should_log(spdlog_level(level))) return;
  logger->log(spdlog_level(level), spdlog::string_view_t(encode(event, fields)));
  report_drops(*logger, false);
}

void emit(LogLevel level, std::string_view event, Fields fields) {
  write_event(level, event, fields);
  if (level >= LogLevel::kInfo) call_listeners(level, event, fields);
}

void register_thread() {
  static ThreadRecord* const record = new ThreadRecord("log", "write log lines");
  record->begin();  // never ended or destroyed, as the log
  sigset_t of_main_thread;
  ::sigemptyset(&of_main_thread);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::sigaddset(&of_main_thread, number);
  ::pthread_sigmask(SIG_BLOCK, &of_main_thread, nullptr);
}

}  // namespace

Field::Field(std::string_view k, double v) : key(k) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", v);
  value = text;
  is_text = !std::isfinite(v);  // JSON has no such numbers
}

std::string format_event(std::string_view event, Fields fields) {
  std::string line(event);
  for (const Field& field : fields) append_field(line, field.key, field.value);
  return line;
}

std::string format_json_event(LogLevel level, std::string_view event, Fields fields) {
  const std::string encoded = encode(event, fields);
  const spdlog::details::log_msg message("", spdlog_level(level), spdlog::string_view_t(encoded));
  spdlog::memory_buf_t line;
  EventFormatter(LogFormat::kJson).format(message, line);
  return {line.data(), line.size() - 1};
}

EventListening::EventListening(EventListener listener) {
  auto next = std::make_shared<const EventListener>(std::move(listener));
  Log& log = state();
  const std::lock_guard lock(log.mutex);
  id_ = log.next_listener++;
  log.listeners.emplace(id_, std::move(next));
  log.has_listeners = true;
}

void EventListening::stop() {
  const uint64_t id = std::exchange(id_, 0);
  if (id == 0) return;
  Log& log = state();
  std::shared_ptr<const EventListener> removed;  // destroyed without the lock
  const std::lock_guard lock(log.mutex);
  const auto found = log.listeners.find(id);
  if (found == log.listeners.end()) return;
  removed = std::move(found->second);
  log.listeners.erase(found);
  log.has_listeners = !log.listeners.empty();
}

Status init_log(const LogOptions& options) {
  std::vector<spdlog::sink_ptr> sinks;
  if (!options.file.empty()) {
    auto file = LogFile::open(options.file, options.rotate_bytes, options.keep_files);
    if (!file.ok()) return file.status();
    sinks.push_back(std::make_shared<FileSink>(*std::move(file)));
  }
  Log& log = state();
  const std::lock_guard lock(log.mutex);
  if (!log.console) log.console = std::make_shared<ConsoleSink>();
  if (options.console && options.journal && is_journal())
    sinks.push_back(std::make_shared<JournalSink>());
  else if (options.console)
    sinks.push_back(log.console);
  if (!log.pool) {
    log.pool = std::make_shared<spdlog::details::thread_pool>(kQueueLines, 1, register_thread);
  }
  auto logger =
      std::make_shared<spdlog::async_logger>("stoker", sinks.begin(), sinks.end(), log.pool,
                                             spdlog::async_overflow_policy::overrun_oldest);
  logger->set_formatter(std::make_unique<EventFormatter>(options.format));
  logger->set_level(spdlog_level(options.level));
  logger->flush_on(spdlog::level::info);
  // Errors of the log must not flood standard error.
  logger->set_error_handler([](const std::string&) {});
  log.logger = std::move(logger);
  return {};
}

void flush_log() {
  Log& log = state();
  std::shared_ptr<spdlog::details::thread_pool> pool;
  std::shared_ptr<spdlog::logger> logger;
  {
    const std::lock_guard lock(log.mutex);
    pool = log.pool;
    logger = log.logger;
  }
  if (!logger) return;
  // The queue becomes empty before its last message is processed: then the first of these two, and
  // all earlier messages, have been. The sinks are not flushed here, because one that blocks holds
  // its lock.
  auto drain = [&logger, &pool, waited = 0]() mutable {
    logger->flush();
    logger->flush();
    for (; waited < 100 && pool->queue_size() > 0; ++waited) ::usleep(10'000);
  };
  drain();
  if (report_drops(*logger, true)) drain();
}

void set_log_level(LogLevel level) {
  if (const auto logger = current_logger()) logger->set_level(spdlog_level(level));
}

void log_debug(LogEvent<LogLevel::kDebug> event, FieldList fields) {
  emit(LogLevel::kDebug, event.name(), {fields.begin(), fields.size()});
}
void log_info(LogEvent<LogLevel::kInfo> event, FieldList fields) {
  emit(LogLevel::kInfo, event.name(), {fields.begin(), fields.size()});
}
void log_info(LogEvent<LogLevel::kInfo> event, FieldList fields, Fields more) {
  std::vector<Field> all(fields);
  all.insert(all.end(), more.begin(), more.end());
  emit(LogLevel::kInfo, event.name(), all);
}
void log_warn(LogEvent<LogLevel::kWarn> event, FieldList fields) {
  emit(LogLevel::kWarn, event.name(), {fields.begin(), fields.size()});
}
void log_error(LogEvent<LogLevel::kError> event, FieldList fields) {
  emit(LogLevel::kError, event.name(), {fields.begin(), fields.size()});
}

bool supports_progress_line() { return ::isatty(STDERR_FILENO) == 1; }

void set_progress_line(std::string_view text) {
  if (!supports_progress_line()) return;
  Log& log = state();
  std::shared_ptr<ConsoleSink> console;
  {
    const std::lock_guard lock(log.mutex);
    if (!log.console) log.console = std::make_shared<ConsoleSink>();
    console = log.console;
  }
  console->set_progress(printable(text));
}

}  // namespace stoker
