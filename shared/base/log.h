// log: one event per line, readable with tail and grep.
//
//   2026-01-31T12:00:00.123Z info    checkpoint saved step=1200 bytes=4815162 duration_ms=41.3
//   path=runs/demo/checkpoints/step-000001200
//
// or, as JSON: {"time":"…","level":"info","event":"checkpoint saved","step":1200,…}. The first words are
// the event, one of log_events.h; everything variable is a field. In text, values with spaces are
// quoted; in JSON, numbers that are not finite are. Under systemd, the lines of standard error go to
// the journal with their fields.
//
// Levels: error = requires action by the operator; warning = the program continues, but not as
// configured; info = main events of the run, at most a few lines per interval; debug = for
// diagnosing faults. No per-sample messages above debug.
//
// Threads:  every function may be called from any thread after init_log(); before it, lines go to
//           standard error.
// Blocking: never. The queue is bounded: if the disk or terminal cannot keep up, the oldest lines
//           are dropped. Lines that cannot be written are dropped as well. Their number is logged.
//           Errors of the log never stop or slow down training.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/log_events.h"
#include "shared/base/log_level.h"
#include "shared/base/status.h"

namespace stoker {

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  std::string file;                     // empty: no log file
  uint64_t rotate_bytes = 64ull << 20;  // a file that exceeds this is rotated
  int keep_files = 5;                   // number of rotated files, in addition to the current one
  bool console = true;                  // also log to standard error
  bool journal = false;  // … or to systemd's journal, if standard error is connected to it
};

struct Field {
  std::string_view key;
  std::string value;
  bool is_text = true;  // not a number, true or false

  Field(std::string_view k, std::string_view v) : key(k), value(v) {}
  Field(std::string_view k, const char* v) : key(k), value(v) {}
  Field(std::string_view k, const std::string& v) : key(k), value(v) {}
  Field(std::string_view k, bool v) : key(k), value(v ? "true" : "false"), is_text(false) {}
  Field(std::string_view k, double v);  // shortest representation, at most 6 significant digits
  template <std::integral T>
  Field(std::string_view k, T v) : key(k), value(std::to_string(v)), is_text(false) {}
};
using Fields = std::span<const Field>;
using FieldList = std::initializer_list<Field>;  // of a call; a span cannot be one in C++20

// The name of an event that log_events.h has with this level.
template <LogLevel level>
class LogEvent {
 public:
  consteval LogEvent(const char* name) : name_(name) {  // NOLINT(google-explicit-constructor)
    if (!has_log_event(name_, level)) throw "log_events.h has no event of this name and level";
  }
  constexpr std::string_view name() const { return name_; }

 private:
  std::string_view name_;
};

// kIoError, kPermission: the file cannot be opened. May be called again to change the options.
Status init_log(const LogOptions& options);
// Writes all queued messages; waits at most one second.
void flush_log();
void set_log_level(LogLevel level);

void log_debug(LogEvent<LogLevel::kDebug> event, FieldList fields = {});
void log_info(LogEvent<LogLevel::kInfo> event, FieldList fields = {});
void log_warn(LogEvent<LogLevel::kWarn> event, FieldList fields = {});
void log_error(LogEvent<LogLevel::kError> event, FieldList fields = {});
// With as many fields of one kind as there are things, such as metric.NAME; `fields` come first.
void log_info(LogEvent<LogLevel::kInfo> event, FieldList fields, Fields more);

// Called for each event of level info or above, whatever the log's level, on the thread that logs it:
// it must not block, throw or log.
using EventListener = std::function<void(LogLevel level, std::string_view event, Fields fields)>;

// Calls a listener until stop(); a call on another thread can end later.
class EventListening {
 public:
  EventListening() = default;
  explicit EventListening(EventListener listener);
  EventListening(EventListening&& other) noexcept { std::swap(id_, other.id_); }
  EventListening& operator=(EventListening&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~EventListening() { stop(); }

  void stop();

 private:
  uint64_t id_ = 0;  // 0: none
};

// A line of the JSON format, without the newline, with the current time.
std::string format_json_event(LogLevel level, std::string_view event, Fields fields);
inline std::string format_json_event(LogLevel level, std::string_view event, FieldList fields) {
  return format_json_event(level, event, Fields(fields.begin(), fields.size()));
}

// Text of an event: "checkpoint saved step=1200 path=\"a b\"". Control characters (utf8.h) and bytes
// that are not UTF-8 are escaped, so that an event is one line that cannot control a terminal.
std::string format_event(std::string_view event, Fields fields);
inline std::string format_event(std::string_view event, FieldList fields) {
  return format_event(event, Fields(fields.begin(), fields.size()));
}

// Progress line of the terminal: printed on standard error, erased before each log line and
// restored after it. Control characters and bytes that are not UTF-8 are replaced. Ignored if
// standard error is not a terminal. Empty text removes it.
void set_progress_line(std::string_view text);
bool supports_progress_line();

}  // namespace stoker
