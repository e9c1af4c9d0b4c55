// Plots of curves over steps: as text on a terminal and as SVG.
//
// Threads: values; functions of their arguments.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ctl/terminal.h"

namespace stoker::ctl {

struct Curve {
  enum class Kind { kLine, kMarks };
  std::string name;  // for the legend
  Kind kind = Kind::kLine;
  // x in rising order; a value that is not finite leaves a gap.
  std::vector<std::pair<double, double>> points;
};

bool has_finite_point(const std::vector<Curve>& curves);

// Values to 0..1 and back.
struct PlotAxis {
  double low = 0;
  double high = 1;
  bool logarithmic = false;

  double at(double value) const;
  double value_at(double part) const;
};

// Round numbers on the axis, about `count` of them, rising; on a logarithmic one 1, 2 and 5 times
// the powers of ten; on another one they are at least so far apart.
std::vector<double> make_ticks(const PlotAxis& axis, int count, double min_distance = 0);

// Drawn with characters.
// With axes, numbers and a legend; ends with a newline. As wide as style.columns (at least 40, at
// most 160), the drawing `rows` (at least 4) high. The y axis is logarithmic where the values span
// more than a factor of 100. Empty where no curve has a finite point.
std::string render_plot(const std::vector<Curve>& curves, const std::string& x_name, int rows,
                        const TextStyle& style);

// A picture (SVG) for pages and reports.
// 720 by 400, readable on light and on dark pages. The axes are those of render_plot(). Empty where
// no curve has a finite point.
std::string render_svg(const std::vector<Curve>& curves, const std::string& x_name);

}  // namespace stoker::ctl
