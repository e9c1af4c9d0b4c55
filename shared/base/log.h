// log: one event a line, for people who tail and for grep.
//
//   2026-01-31T12:00:00.123Z info    checkpoint saved step=1200 bytes=4815162 duration_ms=41.3
//   path=runs/demo/checkpoints/step-000001200
//
// The first words are the event and never vary; everything that varies is a field. Values with
// spaces are quoted. Levels: error = somebody must act; warning = it went on, but not as asked;
// info = the life of the run, at most a few lines per interval; debug = for finding a fault.
// Nothing per sample above debug.
//
// Threads:  every function may be called from any thread after init_log(); before it, lines go to
//           standard error.
// Blocking: never. The queue is bounded; when a disk or terminal does not keep up, the oldest lines
//           are dropped and their number is logged. Trouble with the log never ends or slows
//           training.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "shared/base/status.h"

namespace stoker {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  std::string file;                     // empty: no file
  uint64_t rotate_bytes = 64ull << 20;  // a file that grows past this is rotated
  int keep_files = 5;                   // rotated files kept beside the current one
  bool console = true;                  // also to standard error
};

struct Field {
  std::string_view key;
  std::string value;

  Field(std::string_view k, std::string_view v) : key(k), value(v) {}
  Field(std::string_view k, const char* v) : key(k), value(v) {}
  Field(std::string_view k, const std::string& v) : key(k), value(v) {}
  Field(std::string_view k, bool v) : key(k), value(v ? "true" : "false") {}
  Field(std::string_view k, double v);  // shortest text with at most 6 significant digits
  template <std::integral T>
  Field(std::string_view k, T v) : key(k), value(std::to_string(v)) {}
};
using Fields = std::initializer_list<Field>;

// kIoError, kPermission: the file cannot be opened. May be called again to change the settings.
Status init_log(const LogOptions& options);
// Writes out what is queued; waits at most a second.
void flush_log();
void set_log_level(LogLevel level);

void log_debug(std::string_view event, Fields fields = {});
void log_info(std::string_view event, Fields fields = {});
void log_warn(std::string_view event, Fields fields = {});
void log_error(std::string_view event, Fields fields = {});

// How an event is spelled: "checkpoint saved step=1200 path=\"a b\"". Control characters are
// escaped, so that one event is always one line, whatever a file name holds.
std::string format_event(std::string_view event, Fields fields);

// A sink for one changing line on the terminal (progress): printed on standard error, erased before
// each log line and put back after it. Ignored when standard error is no terminal. Empty text
// removes it.
void set_progress_line(std::string_view text);
bool supports_progress_line();

}  // namespace stoker
