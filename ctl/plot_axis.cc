#include "ctl/plot_axis.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "ctl/number_format.h"

namespace stoker::ctl {
namespace {

// From this ratio of largest to smallest on, the y axis is logarithmic.
constexpr double kLogFactor = 100;

std::optional<PlotAxis> try_make_axis(const std::vector<Curve>& curves, bool of_y) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const Curve& curve : curves) {
    for (const auto& point : curve.points) {
      if (!is_finite(point)) continue;
      low = std::min(low, of_y ? point.second : point.first);
      high = std::max(high, of_y ? point.second : point.first);
    }
  }
  if (low > high) return std::nullopt;
  if (low < high && high / 2 - low / 2 > 0)
    return PlotAxis{low, high, of_y && low > 0 && high / low > kLogFactor};
  constexpr double kLargest = std::numeric_limits<double>::max();
  // Along x steps are counted: one on each side, or what a double of that size can tell apart.
  const double apart = of_y ? std::abs(low) / 2 : std::max(1.0, std::abs(low) * 1e-9);
  const double room = std::clamp(apart, low == 0 ? 1 : 1e-300, kLargest / 4);
  return PlotAxis{std::max(low - room, -kLargest), std::min(high + room, kLargest), false};
}

std::vector<double> log_ticks(const PlotAxis& axis, int count) {
  std::vector<double> ticks;
  const double decades = std::log10(axis.high) - std::log10(axis.low);
  for (int power = static_cast<int>(std::floor(std::log10(axis.low)));
       power <= static_cast<int>(std::ceil(std::log10(axis.high))); ++power) {
    for (const double first : {1.0, 2.0, 5.0}) {
      if (first != 1 && decades * 2 > count) continue;  // powers of ten are enough
      const double tick = first * std::pow(10, power);
      if (tick >= axis.low && tick <= axis.high) ticks.push_back(tick);
    }
  }
  return ticks;
}

}  // namespace

bool is_finite(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

double PlotAxis::at(double value) const {
  if (logarithmic) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
  // Halves, so that the width of the widest range is still a number.
  return (value / 2 - low / 2) / (high / 2 - low / 2);
}

double PlotAxis::value_at(double part) const {
  if (logarithmic) return std::exp(std::lerp(std::log(low), std::log(high), part));
  return std::lerp(low, high, part);
}

std::optional<PlotAxis> try_make_x_axis(const std::vector<Curve>& curves) {
  return try_make_axis(curves, false);
}

std::optional<PlotAxis> try_make_y_axis(const std::vector<Curve>& curves) {
  return try_make_axis(curves, true);
}

std::vector<double> make_ticks(const PlotAxis& axis, int count, double min_distance) {
  if (axis.logarithmic) return log_ticks(axis, count);
  const double rough = axis.high / count - axis.low / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double round : {1.0, 2.0, 5.0}) {
    if (power * round < rough) continue;
    step = power * round;
    break;
  }
  step = std::max(step, min_distance);
  std::vector<double> ticks;
  if (!std::isfinite(step) || !(step > 0)) return ticks;
  const double first = std::ceil(axis.low / step);
  for (int i = 0; i <= 2 * count && (first + i) * step <= axis.high; ++i)
    ticks.push_back((first + i) * step);
  return ticks;
}

std::string format_y(const PlotAxis& axis, double value, int digits, int count) {
  constexpr int kMaxDecimals = 9;
  const double size = std::abs(value);
  const double apart = axis.logarithmic ? size : (axis.high - axis.low) / count;
  const bool is_plain = size < 1e6 && apart > 1e-4;
  if (!is_plain) return format_number(value, digits);
  const int needed = apart < 1 ? static_cast<int>(-std::floor(std::log10(apart))) : 0;
  char text[40];
  std::snprintf(text, sizeof text, "%.*f",
                std::min(kMaxDecimals, std::max(needed, num_decimals(value, digits))), value);
  return text;
}

}  // namespace stoker::ctl
