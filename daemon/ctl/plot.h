// render_plot: curves over steps, drawn with characters.
//
// Threads: a function of its arguments.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace stoker::ctl {

// What the terminal can show.
struct ReportStyle {
  int columns = 80;
  bool colour = false;  // ANSI colours
  bool unicode = true;  // braille dots and rules; else plain ASCII
};

struct Curve {
  enum class Kind { kLine, kMarks };
  std::string name;  // for the legend
  Kind kind = Kind::kLine;
  std::vector<std::pair<double, double>>
      points;  // x in rising order; a y that is not finite leaves a gap
};

// With axes, numbers and a legend; ends with a newline. As wide as style.columns (at least 40, at
// most 160). The y axis is logarithmic where the values span more than a factor of 100. Empty where
// no curve has a finite point.
std::string render_plot(const std::vector<Curve>& curves, const std::string& x_name,
                        const ReportStyle& style);

// "1.2346", "12.35", "3.2e+08", "NaN": at most about `digits` significant digits, never more than
// 10 characters.
std::string format_number(double value, int digits);
// "1234567" as "1 234 567".
std::string format_count(uint64_t value);

}  // namespace stoker::ctl
