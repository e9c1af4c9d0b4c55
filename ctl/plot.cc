#include "ctl/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "ctl/canvas.h"
#include "ctl/number_format.h"
#include "ctl/plot_axis.h"

namespace stoker::ctl {
namespace {

constexpr size_t kLabelColumns = 9;

struct Drawing {
  PlotAxis x;
  PlotAxis y;
  Canvas canvas;

  int dot_x(double value) const {
    return static_cast<int>(std::lround(x.at(value) * (canvas.dots_wide() - 1)));
  }
  int dot_y(double part) const {
    return canvas.dots_high() - 1 - static_cast<int>(std::lround(part * (canvas.dots_high() - 1)));
  }
};

void draw_marks(Drawing& drawing, const Curve& curve, int owner) {
  for (const auto& point : curve.points) {
    if (!is_finite(point)) continue;
    drawing.canvas.mark(drawing.dot_x(point.first), drawing.dot_y(drawing.y.at(point.second)),
                        owner);
  }
}

// Points that fall into one column of dots become their mean: a long run has far more points than
// the screen.
void draw_line(Drawing& drawing, const Curve& curve, int owner) {
  const auto& points = curve.points;
  std::optional<std::pair<int, int>> before;  // nothing: begin anew
  for (size_t i = 0; i < points.size();) {
    if (!is_finite(points[i])) {
      before.reset();
      ++i;
      continue;
    }
    const int column = drawing.dot_x(points[i].first);
    double sum = 0;
    int count = 0;
    for (; i < points.size() && is_finite(points[i]) && drawing.dot_x(points[i].first) == column;
         ++i, ++count)
      sum += drawing.y.at(points[i].second);
    const int row = drawing.dot_y(sum / count);
    if (before.has_value()) {
      drawing.canvas.line(before->first, before->second, column, row, owner);
    } else {
      drawing.canvas.dot(column, row, owner);
    }
    before = {column, row};
  }
}

void draw(Drawing& drawing, const Curve& curve, int owner) {
  const auto points = std::count_if(curve.points.begin(), curve.points.end(), is_finite);
  // A line of one point would be a dot that nobody sees.
  if (curve.kind == Curve::Kind::kMarks || points == 1) return draw_marks(drawing, curve, owner);
  draw_line(drawing, curve, owner);
}

std::string x_number(double value) {
  if (value >= 0 && value < 1e15) return format_count(static_cast<uint64_t>(std::llround(value)));
  return format_number(value, 3);
}

std::string x_labels(const PlotAxis& axis, size_t columns, const std::string& name) {
  const std::string left = x_number(axis.low);
  const std::string right = x_number(axis.high) + " " + name;
  // There is no half a step.
  const double half = axis.value_at(0.5);
  const bool is_integer = std::abs(half - std::round(half)) <= (axis.high / 2 - axis.low / 2) / 500;
  const std::string middle = is_integer ? x_number(half) : "";
  std::string line(std::max(columns, left.size() + right.size() + 1), ' ');
  line.replace(0, left.size(), left);
  line.replace(line.size() - right.size(), right.size(), right);
  const size_t at = line.size() / 2 - middle.size() / 2;
  if (at > left.size() + 2 && at + middle.size() + 2 < line.size() - right.size())
    line.replace(at, middle.size(), middle);
  return line;
}

std::string legend(const std::vector<Curve>& curves, const PlotAxis& y, const TextStyle& style) {
  std::string line;
  for (size_t i = 0; i < curves.size(); ++i) {
    const bool marks = curves[i].kind == Curve::Kind::kMarks;
    const std::string sign = style.unicode ? (marks ? "●" : "⠤⠤") : (marks ? "o" : "..");
    line += i > 0 ? "   " : "";
    line += style.color ? std::string(kCurveColors[i % kCurveColors.size()]) + sign +
                              std::string(kResetColor)
                        : sign;
    line += " " + printable(curves[i].name);
  }
  if (y.logarithmic) line += "   (logarithmic)";
  return line;
}

std::string label_of(const Drawing& drawing, int row, int rows) {
  // A number at every fourth row, and at the last.
  if (row != rows - 1 && (row % 4 != 0 || rows - row <= 3)) return "";
  const double value = drawing.y.value_at(1 - static_cast<double>(row) / (rows - 1));
  return format_y(drawing.y, value, 4, rows / 4 + 1);
}

}  // namespace

std::string render_plot(const std::vector<Curve>& curves, const std::string& x_name, int rows,
                        const TextStyle& style) {
  const auto x = try_make_x_axis(curves);
  const auto y = try_make_y_axis(curves);
  if (!x.has_value() || !y.has_value()) return "";
  rows = std::clamp(rows, 4, 100);
  const size_t columns = static_cast<size_t>(std::clamp(style.columns, 40, 160));
  const size_t width = columns - kLabelColumns - 3;
  Drawing drawing{*x, *y, Canvas(static_cast<int>(width), rows, style.unicode)};
  for (size_t i = 0; i < curves.size(); ++i) draw(drawing, curves[i], static_cast<int>(i));
  const std::string indent(kLabelColumns + 1, ' ');
  std::string out = indent + " " + legend(curves, *y, style) + "\n";
  for (int row = 0; row < rows; ++row) {
    const std::string label = label_of(drawing, row, rows);
    out += std::string(kLabelColumns - std::min(label.size(), kLabelColumns), ' ') + label + " ";
    out += label.empty() ? (style.unicode ? "│" : "|") : (style.unicode ? "┤" : "+");
    out += drawing.canvas.format_row(row, style.color) + "\n";
  }
  out += indent + (style.unicode ? "└" : "+");
  for (size_t i = 0; i < width; ++i) out += style.unicode ? "─" : "-";
  return out + "\n" + indent + " " + x_labels(*x, width, x_name) + "\n";
}

}  // namespace stoker::ctl
