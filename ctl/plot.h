// Plots of curves over steps, as text for a terminal and as SVG.
//
// Threads: values and pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ctl/terminal.h"

namespace stoker::ctl {

struct Curve {
  enum class Kind { kLine, kMarks };
  std::string name;  // shown in the legend
  Kind kind = Kind::kLine;
  // x in ascending order; a value that is not finite leaves a gap.
  std::vector<std::pair<double, double>> points;
};

bool has_finite_point(const std::vector<Curve>& curves);

// Maps values to [0, 1] and back.
struct PlotAxis {
  double low = 0;
  double high = 1;
  bool logarithmic = false;

  double at(double value) const;
  double value_at(double fraction) const;
};

// About `count` round numbers on the axis in ascending order. On a logarithmic axis they are powers
// of ten times 1, 2 and 5. On a linear axis they are at least `min_distance` apart.
std::vector<double> make_ticks(const PlotAxis& axis, int count, double min_distance = 0);

// Renders the curves as text with axes, labels and a legend; ends with a newline. The width is
// style.columns, limited to 40 to 160; the plot area has `rows` (at least 4) rows. The y axis is
// logarithmic if the values span more than a factor of 100. Empty if no curve has a finite point.
std::string render_plot(const std::vector<Curve>& curves, const std::string& x_name, int rows,
                        const TextStyle& style);

// Renders the curves as an SVG image of 720 by 400 pixels, readable on light and dark backgrounds;
// higher if the legend has several rows.
// The axes are those of render_plot(). Empty if no curve has a finite point.
std::string render_svg(const std::vector<Curve>& curves, const std::string& x_name);

// Text of an SVG image or an HTML page.
std::string escaped(std::string_view text);

}  // namespace stoker::ctl
