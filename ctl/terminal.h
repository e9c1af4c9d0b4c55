// Where a command writes: TextStyle, Console and Progress.
//
// Threads: one object per thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "shared/base/clock.h"
#include "shared/base/status.h"

namespace stoker::ctl {

// What the terminal, or whatever else reads our output, can show.
struct TextStyle {
  int columns = 80;
  bool live = false;     // a terminal: lines may be drawn again
  bool color = false;    // ANSI colours
  bool unicode = false;  // braille dots and rules; else plain ASCII
};

// `environment` as getenv(); `columns` as the terminal says, 0: it does not. Colour needs a terminal
// that is not "dumb", and no NO_COLOR; Unicode needs a locale that says UTF-8.
TextStyle detect_style(bool is_terminal, int columns,
                       const std::function<const char*(const char*)>& environment);
TextStyle standard_output_style();

struct Console {
  std::ostream& out;  // what was asked for
  std::ostream& err;  // why it cannot be had
  TextStyle style;

  // Says what went wrong and returns `code`.
  ExitCode fail(const Status& status, ExitCode code) const {
    err << "stokerctl: " << status.message() << "\n";
    return code;
  }
};

// A line on a terminal that says how far long work has come; nothing elsewhere, nor for work that is
// done at once. The destructor erases the line; console and clock must outlive the object.
class Progress {
 public:
  // `what`: "verifying step 1 200". `bytes`: of all the work; 0: not known.
  Progress(const Console& console, Clock& clock, std::string what, uint64_t bytes);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void add(uint64_t bytes);

 private:
  void draw(std::chrono::nanoseconds now);

  // Constant after construction.
  const Console& console_;
  Clock& clock_;
  const std::string what_;
  const uint64_t bytes_;
  const std::chrono::nanoseconds began_;

  uint64_t done_ = 0;
  std::chrono::nanoseconds drawn_{0};
  bool is_drawn_ = false;
};

}  // namespace stoker::ctl
