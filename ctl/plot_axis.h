// Curve and PlotAxis: what a plot shows, and how its values become places, whatever draws them.
//
// Threads: values; functions of their arguments.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stoker::ctl {

struct Curve {
  enum class Kind { kLine, kMarks };
  std::string name;  // for the legend
  Kind kind = Kind::kLine;
  // x in rising order; a value that is not finite leaves a gap.
  std::vector<std::pair<double, double>> points;
};

bool is_finite(const std::pair<double, double>& point);

// Values to 0..1 and back.
struct PlotAxis {
  double low = 0;
  double high = 1;
  bool logarithmic = false;

  double at(double value) const;
  double value_at(double part) const;
};

// From the smallest finite value to the largest; a constant stands in the middle, a single step between
// the one before it and the one after. The y axis is
// logarithmic where its values span more than a factor of 100. Nothing where there is no value.
std::optional<PlotAxis> try_make_x_axis(const std::vector<Curve>& curves);
std::optional<PlotAxis> try_make_y_axis(const std::vector<Curve>& curves);

// Round numbers on the axis, about `count` of them, rising; on a logarithmic one 1, 2 and 5 times
// the powers of ten; on another one they are at least so far apart.
std::vector<double> make_ticks(const PlotAxis& axis, int count, double min_distance = 0);

// A number on the y axis, which has `count` of them: as format_number(), with as many more decimals as
// it takes to tell one from the next.
std::string format_y(const PlotAxis& axis, double value, int digits, int count);

}  // namespace stoker::ctl
