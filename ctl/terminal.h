// TextStyle, Console and Progress: output of the commands.
//
// Threads: one object per thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

#include "shared/base/clock.h"
#include "shared/base/status.h"
#include "shared/base/utf8.h"

namespace stoker::ctl {

// Capabilities of the terminal, or of whatever else reads the output.
struct TextStyle {
  int columns = 80;
  bool live = false;     // a terminal: lines can be redrawn
  bool color = false;    // ANSI colors
  bool unicode = false;  // braille dots and box-drawing characters; otherwise ASCII
};

// `environment` behaves like getenv(). `columns` is the terminal width; 0: unknown. Color requires
// a terminal that is not "dumb" and that NO_COLOR is not set. Unicode requires a UTF-8 locale.
TextStyle detect_style(bool is_terminal, int columns,
                       const std::function<const char*(const char*)>& environment);
TextStyle standard_output_style();

// What others have written (names, messages, logs, replies of a daemon) is printed by these functions,
// or as text that printable() returned: it can neither control the terminal nor forge a line.
struct Console {
  std::ostream& out;  // requested output
  std::ostream& err;  // error messages
  TextStyle style;

  // Prints the error and returns `code`.
  ExitCode fail(const Status& status, ExitCode code) const {
    err << "stokerctl: " << printable_lines(status.message(), "  ") << "\n";
    return code;
  }
  // Prints what limits the output, apart from it.
  void note(const std::string& text) const {
    err << "stokerctl: " << printable_lines(text, "  ") << "\n";
  }
  // Prints a JSON value and a line break.
  void print_json(std::string_view json) const { out << printable_json(json) << "\n"; }
  // Prints lines of a log.
  void print_lines(std::string_view text) const { out << printable_lines(text); }
};

// Erases the current line of a terminal.
inline constexpr const char kClearLine[] = "\r\x1b[K";

// Progress: shows the progress of a long operation in one line of a terminal. Prints nothing if the
// output is not a terminal or the operation is short. The destructor erases the line; console and
// clock must outlive the object.
class Progress {
 public:
  // `label`: "verifying step 1 200". `bytes`: total amount of work; 0: unknown.
  Progress(const Console& console, Clock& clock, std::string label, uint64_t bytes);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void add(uint64_t bytes);

 private:
  void draw(std::chrono::nanoseconds now);

  // Constant after construction.
  const Console& console_;
  Clock& clock_;
  const std::string label_;
  const uint64_t bytes_;
  const std::chrono::nanoseconds start_time_;

  uint64_t done_ = 0;
  std::chrono::nanoseconds last_drawn_{0};
  bool is_drawn_ = false;
};

}  // namespace stoker::ctl
