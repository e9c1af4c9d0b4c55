// TextStyle: what the terminal, or whatever else reads our output, can show.
//
// Threads: values; functions of their arguments, but for standard_output_style().
#pragma once

#include <functional>

namespace stoker::ctl {

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

}  // namespace stoker::ctl
