#include "shared/base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>

#include <spdlog/async.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/spdlog.h>

#include "shared/base/thread_registry.h"
#include "shared/base/utf8.h"

namespace stoker {
namespace {

constexpr size_t kQueueLines = 8192;
constexpr std::string_view kPattern = "%Y-%m-%dT%H:%M:%S.%eZ %v";

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

// Padded to seven columns, so that the events of a log are aligned.
std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug   ";
    case LogLevel::kInfo:
      return "info    ";
    case LogLevel::kWarn:
      return "warning ";
    case LogLevel::kError:
      return "error   ";
  }
  return "info    ";
}

void write_to_stderr(std::string_view text) {
  // One write() per line. Errors of a closed or full standard error are ignored.
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
}

// Standard error with a progress line at the bottom.
class ConsoleSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void set_progress(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (text == progress_) return;
    std::string out = "\r\033[K";
    out += text;
    progress_ = text;
    write_to_stderr(out);
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

struct Log {
  std::mutex mutex;
  std::shared_ptr<spdlog::details::thread_pool> pool;
  std::shared_ptr<ConsoleSink> console;
  std::shared_ptr<spdlog::logger> logger;
  std::atomic<uint64_t> reported_drops{0};  // written by the thread that logs the number
};

Log& state() {
  // Never destroyed, because threads can log while the program exits.
  static Log* const log = new Log;
  return *log;
}

std::shared_ptr<spdlog::logger> current_logger() {
  const std::lock_guard lock(state().mutex);
  return state().logger;
}

void emit(LogLevel level, std::string_view event, Fields fields) {
  const auto logger = current_logger();
  if (!logger) {
    if (level >= LogLevel::kInfo) write_to_stderr(format_event(event, fields) + "\n");
    return;
  }
  if (!logger->should_log(spdlog_level(level))) return;
  logger->log(spdlog_level(level), spdlog::string_view_t("{}"),
              std::string(to_string(level)) + format_event(event, fields));
  Log& log = state();
  const uint64_t drops = log.pool->overrun_counter();
  const uint64_t reported = log.reported_drops.exchange(drops);
  if (drops > reported) {
    logger->warn(
        "warning log lines dropped count={} reason=\"the log's disk or terminal is too slow\"",
        drops - reported);
  }
}

void register_thread() {
  static ThreadRecord* const record = new ThreadRecord("log", "write log lines");
  record->begin();  // never ended or destroyed, as the log
}

// Child processes must not inherit the log file.
spdlog::file_event_handlers not_inherited() {
  spdlog::file_event_handlers handlers;
  handlers.after_open = [](const spdlog::filename_t&, std::FILE* file) {
    (void)::fcntl(::fileno(file), F_SETFD, FD_CLOEXEC);
  };
  return handlers;
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

void append_escaped(std::string& out, std::string_view value) {
  while (!value.empty()) {
    const size_t valid_bytes = utf8_character_bytes(value);
    const std::string_view character = value.substr(0, valid_bytes > 0 ? valid_bytes : 1);
    value.remove_prefix(character.size());
    if (character == "\"" || character == "\\") {
      out += '\\';
      out += character;
    } else if (character == "\n") {
      out += "\\n";
    } else if (valid_bytes == 0 || is_control_character(character)) {
      append_hex(out, character);
    } else {
      out += character;
    }
  }
}

}  // namespace

Field::Field(std::string_view k, double v) : key(k) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", v);
  value = text;
}

std::string format_event(std::string_view event, Fields fields) {
  std::string line(event);
  for (const Field& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    const bool quoted = needs_quotes(field.value);
    if (quoted) line += '"';
    append_escaped(line, field.value);
    if (quoted) line += '"';
  }
  return line;
}

Status init_log(const LogOptions& options) {
  std::vector<spdlog::sink_ptr> sinks;
  try {
    if (!options.file.empty()) {
      sinks.push_back(std::make_shared<spdlog::sinks::rotating_file_sink_mt>(
          options.file, options.rotate_bytes, static_cast<size_t>(options.keep_files),
          /*rotate_on_open=*/false, not_inherited()));
    }
  } catch (const spdlog::spdlog_ex& error) {
    return Status(StatusCode::kIoError, std::string("open the log file: ") + error.what());
  }
  Log& log = state();
  const std::lock_guard lock(log.mutex);
  if (!log.console) log.console = std::make_shared<ConsoleSink>();
  if (options.console) sinks.push_back(log.console);
  if (!log.pool) {
    log.pool = std::make_shared<spdlog::details::thread_pool>(kQueueLines, 1, register_thread);
  }
  auto logger =
      std::make_shared<spdlog::async_logger>("stoker", sinks.begin(), sinks.end(), log.pool,
                                             spdlog::async_overflow_policy::overrun_oldest);
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
      std::string(kPattern), spdlog::pattern_time_type::utc));
  logger->set_level(spdlog_level(options.level));
  logger->flush_on(spdlog::level::info);
  // A full disk must not flood standard error.
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
  // The queue becomes empty before its last message is written. After an additional flush message,
  // an empty queue means that all earlier messages have been written.
  logger->flush();
  for (int waited = 0; waited < 100 && pool->queue_size() > 0; ++waited) ::usleep(10'000);
  for (const auto& sink : logger->sinks()) sink->flush();
}

void set_log_level(LogLevel level) {
  if (const auto logger = current_logger()) logger->set_level(spdlog_level(level));
}

void log_debug(std::string_view event, Fields fields) { emit(LogLevel::kDebug, event, fields); }
void log_info(std::string_view event, Fields fields) { emit(LogLevel::kInfo, event, fields); }
void log_warn(std::string_view event, Fields fields) { emit(LogLevel::kWarn, event, fields); }
void log_error(std::string_view event, Fields fields) { emit(LogLevel::kError, event, fields); }

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
