#include "ctl/plot.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "shared/base/readable_format.h"
#include "shared/base/utf8.h"

namespace stoker::ctl {
namespace {

constexpr std::array<std::string_view, 4> kCurveColors{"\x1b[36m", "\x1b[33m", "\x1b[35m",
                                                       "\x1b[32m"};

constexpr std::string_view kResetColor = "\x1b[0m";

// Canvas: a grid of character cells to draw lines and marks on. Each cell is a small grid of dots.
//
// Dots are counted from the upper left corner. With Unicode, a cell is a braille character of 2 by
// 4 dots, otherwise an ASCII character of 1 by 2 dots.
class Canvas {
 public:
  Canvas(int columns, int rows, bool unicode);

  int dots_wide() const { return columns_ * cell_wide_; }
  int dots_high() const { return rows_ * cell_high_; }

  // Points outside are clamped to the border. `owner` selects the color.
  void dot(int x, int y, int owner);
  // Marks a whole cell; the mark hides the dots of the cell.
  void mark(int x, int y, int owner);
  // A straight line with one dot per step along the longer side.
  void line(int x0, int y0, int x1, int y1, int owner);

  // Without trailing blanks.
  std::string format_row(int row, bool color) const;

 private:
  struct Cell {
    uint8_t dots = 0;  // bit index = y * dots per row + x
    bool marked = false;
    int owner = 0;
  };
  Cell& cell_of(int x, int y);
  std::string glyph(const Cell& cell) const;

  const int columns_;
  const int rows_;
  const bool unicode_;
  const int cell_wide_;
  const int cell_high_;
  std::vector<Cell> cells_;
};

Canvas::Canvas(int columns, int rows, bool unicode)
    : columns_(columns),
      rows_(rows),
      unicode_(unicode),
      cell_wide_(unicode ? 2 : 1),
      cell_high_(unicode ? 4 : 2),
      cells_(static_cast<size_t>(columns) * static_cast<size_t>(rows)) {
  assert(columns > 0 && rows > 0);
}

Canvas::Cell& Canvas::cell_of(int x, int y) {
  const int cell = y / cell_high_ * columns_ + x / cell_wide_;
  return cells_[static_cast<size_t>(cell)];
}

void Canvas::dot(int x, int y, int owner) {
  x = std::clamp(x, 0, dots_wide() - 1);
  y = std::clamp(y, 0, dots_high() - 1);
  Cell& cell = cell_of(x, y);
  cell.dots =
      static_cast<uint8_t>(cell.dots | 1u << ((y % cell_high_) * cell_wide_ + x % cell_wide_));
  if (!cell.marked) cell.owner = owner;
}

void Canvas::mark(int x, int y, int owner) {
  Cell& cell = cell_of(std::clamp(x, 0, dots_wide() - 1), std::clamp(y, 0, dots_high() - 1));
  cell.marked = true;
  cell.owner = owner;
}

void Canvas::line(int x0, int y0, int x1, int y1, int owner) {
  const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
  for (int i = 0; i <= steps; ++i) {
    const double part = static_cast<double>(i) / steps;
    dot(x0 + static_cast<int>(std::lround(part * (x1 - x0))),
        y0 + static_cast<int>(std::lround(part * (y1 - y0))), owner);
  }
}

std::string Canvas::format_row(int row, bool color) const {
  std::string text;
  size_t blanks = 0;
  for (int column = 0; column < columns_; ++column) {
    const int index = row * columns_ + column;
    const Cell& cell = cells_[static_cast<size_t>(index)];
    if (!cell.marked && cell.dots == 0) {
      ++blanks;
      continue;
    }
    text.append(blanks, ' ');
    blanks = 0;
    if (color) text += kCurveColors[static_cast<size_t>(cell.owner) % kCurveColors.size()];
    text += glyph(cell);
    if (color) text += kResetColor;
  }
  return text;
}

std::string Canvas::glyph(const Cell& cell) const {
  if (cell.marked) return unicode_ ? "●" : "o";
  if (!unicode_) return std::array<const char*, 4>{" ", "'", ".", ":"}[cell.dots & 3u];
  // Braille dots are numbered down the left column, then down the right one; the last row comes
  // last.
  constexpr std::array<int, 8> kBrailleBit{0, 3, 1, 4, 2, 5, 6, 7};
  int code = 0x2800;
  for (size_t dot = 0; dot < 8; ++dot)
    if ((cell.dots >> dot & 1) != 0) code |= 1 << kBrailleBit[dot];
  return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

bool is_finite(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

// Minimum ratio of the largest to the smallest value for a logarithmic y axis.
constexpr double kLogFactor = 100;

// From the smallest to the largest finite value. A constant value is centered; a single step is
// centered between the steps before and after. nullopt if there is no finite value.
std::optional<PlotAxis> try_make_axis(const std::vector<Curve>& curves, bool is_y) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const Curve& curve : curves) {
    for (const auto& point : curve.points) {
      if (!is_finite(point)) continue;
      low = std::min(low, is_y ? point.second : point.first);
      high = std::max(high, is_y ? point.second : point.first);
    }
  }
  if (low > high) return std::nullopt;
  if (low < high && high / 2 - low / 2 > 0)
    return PlotAxis{low, high, is_y && low > 0 && high / low > kLogFactor};
  constexpr double kLargest = std::numeric_limits<double>::max();
  // The x axis counts steps: one step on each side, or the resolution of a double of that size.
  const double spacing = is_y ? std::abs(low) / 2 : std::max(1.0, std::abs(low) * 1e-9);
  const double margin = std::clamp(spacing, low == 0 ? 1 : 1e-300, kLargest / 4);
  return PlotAxis{std::max(low - margin, -kLargest), std::min(high + margin, kLargest), false};
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

// Of a number with about `digits` digits.
int num_decimals(double value, int digits) {
  const double size = std::abs(value);
  return std::max(0, digits - (size < 1 ? 1 : static_cast<int>(std::log10(size)) + 1));
}

// Formats a label of the y axis, which has `count` labels: like format_number(), but with as many
// more decimals as are needed to distinguish adjacent labels.
std::string format_y(const PlotAxis& axis, double value, int digits, int count) {
  constexpr int kMaxDecimals = 9;
  const double size = std::abs(value);
  const double spacing = axis.logarithmic ? size : (axis.high - axis.low) / count;
  const bool is_plain = size < 1e6 && spacing >= 1e-4;
  if (!is_plain) return format_number(value, digits);
  const int needed = spacing < 1 ? static_cast<int>(-std::floor(std::log10(spacing))) : 0;
  char text[40];
  std::snprintf(text, sizeof text, "%.*f",
                std::min(kMaxDecimals, std::max(needed, num_decimals(value, digits))), value);
  return text;
}

}  // namespace

bool has_finite_point(const std::vector<Curve>& curves) {
  return std::ranges::any_of(
      curves, [](const Curve& curve) { return std::ranges::any_of(curve.points, is_finite); });
}

double PlotAxis::at(double value) const {
  if (logarithmic) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
  // Halve first, so that the difference cannot overflow.
  return (value / 2 - low / 2) / (high / 2 - low / 2);
}

double PlotAxis::value_at(double fraction) const {
  if (logarithmic) return std::exp(std::lerp(std::log(low), std::log(high), fraction));
  return std::lerp(low, high, fraction);
}

std::vector<double> make_ticks(const PlotAxis& axis, int count, double min_distance) {
  if (axis.logarithmic) return log_ticks(axis, count);
  const double raw_step = axis.high / count - axis.low / count;
  const double power = std::pow(10, std::floor(std::log10(raw_step)));
  double step = power * 10;
  for (const double round : {1.0, 2.0, 5.0}) {
    if (power * round < raw_step) continue;
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

namespace {

constexpr size_t kLabelColumns = 9;

struct TextDrawing {
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

void draw_marks(TextDrawing& drawing, const Curve& curve, int owner) {
  for (const auto& point : curve.points) {
    if (!is_finite(point)) continue;
    drawing.canvas.mark(drawing.dot_x(point.first), drawing.dot_y(drawing.y.at(point.second)),
                        owner);
  }
}

// Averages the points in each column of dots, because a long run has far more points than the
// screen has columns.
void draw_line(TextDrawing& drawing, const Curve& curve, int owner) {
  const auto& points = curve.points;
  std::pair<int, int> before{0, 0};
  bool has_before = false;  // false: start a new line
  for (size_t i = 0; i < points.size();) {
    if (!is_finite(points[i])) {
      has_before = false;
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
    if (has_before) {
      drawing.canvas.line(before.first, before.second, column, row, owner);
    } else {
      drawing.canvas.dot(column, row, owner);
    }
    before = {column, row};
    has_before = true;
  }
}

void draw(TextDrawing& drawing, const Curve& curve, int owner) {
  const auto points = std::count_if(curve.points.begin(), curve.points.end(), is_finite);
  // A line of one point would be a single dot, which is hard to see.
  if (curve.kind == Curve::Kind::kMarks || points == 1) return draw_marks(drawing, curve, owner);
  draw_line(drawing, curve, owner);
}

std::string text_x_number(double value) {
  if (value >= 0 && value < 1e15) return format_count(static_cast<uint64_t>(std::llround(value)));
  return format_number(value, 3);
}

std::string x_labels(const PlotAxis& axis, size_t columns, const std::string& name) {
  const std::string left = text_x_number(axis.low);
  const std::string right = text_x_number(axis.high) + " " + name;
  // Steps are integers, so a fractional middle gets no label.
  const double half = axis.value_at(0.5);
  const bool is_integer = std::abs(half - std::round(half)) <= (axis.high / 2 - axis.low / 2) / 500;
  const std::string middle = is_integer ? text_x_number(half) : "";
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
    const std::string symbol = style.unicode ? (marks ? "●" : "⠤⠤") : (marks ? "o" : "..");
    line += i > 0 ? "   " : "";
    line += style.color ? std::string(kCurveColors[i % kCurveColors.size()]) + symbol +
                              std::string(kResetColor)
                        : symbol;
    line += " " + printable(curves[i].name);
  }
  if (y.logarithmic) line += "   (logarithmic)";
  return line;
}

std::string label_of(const TextDrawing& drawing, int row, int rows) {
  // Label every fourth row and the last one.
  if (row != rows - 1 && (row % 4 != 0 || rows - row <= 3)) return "";
  const double value = drawing.y.value_at(1 - static_cast<double>(row) / (rows - 1));
  return format_y(drawing.y, value, 4, rows / 4 + 1);
}

}  // namespace

std::string render_plot(const std::vector<Curve>& curves, const std::string& x_name, int rows,
                        const TextStyle& style) {
  const auto x = try_make_axis(curves, false);
  const auto y = try_make_axis(curves, true);
  if (!x.has_value() || !y.has_value()) return "";
  rows = std::clamp(rows, 4, 100);
  const size_t columns = static_cast<size_t>(std::clamp(style.columns, 40, 160));
  const size_t width = columns - kLabelColumns - 3;
  TextDrawing drawing{*x, *y, Canvas(static_cast<int>(width), rows, style.unicode)};
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

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '&':
        out += "&amp;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

namespace {

constexpr double kWidth = 720, kHeight = 400;
constexpr double kLeft = 64, kRight = 36, kTop = 36, kBottom = 44;
constexpr int kXTicks = 6, kYTicks = 6;
constexpr double kOneStep = 1;
constexpr std::array<std::string_view, 8> kColors{"#1f77b4", "#e6761a", "#9a4fb5", "#2a9d5c",
                                                  "#d6455d", "#8c6d31", "#17a2b8", "#c2529b"};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

struct SvgDrawing {
  PlotAxis x;
  PlotAxis y;
  std::string svg;

  double left(double value) const { return kLeft + x.at(value) * (kWidth - kLeft - kRight); }
  double top(double value) const { return kTop + (1 - y.at(value)) * (kHeight - kTop - kBottom); }
  void text(double at_left, double at_top, std::string_view anchor, const std::string& words) {
    svg += "<text x=\"" + number(at_left) + "\" y=\"" + number(at_top) + "\" text-anchor=\"" +
           std::string(anchor) + "\">" + escaped(words) + "</text>\n";
  }
  void rule(double x1, double y1, double x2, double y2) {
    svg += "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
           "\" y2=\"" + number(y2) + "\"/>\n";
  }
};

std::string svg_x_number(double value) {
  const bool is_count = value >= 0 && value < 1e15 && value == std::floor(value);
  return is_count ? format_count(static_cast<uint64_t>(value)) : format_number(value, 3);
}

void draw_axes(SvgDrawing& drawing, const std::string& x_name) {
  const double bottom = kHeight - kBottom;
  drawing.svg += "<g stroke=\"#888\" stroke-opacity=\"0.35\">\n";
  for (const double tick : make_ticks(drawing.x, kXTicks, kOneStep))
    drawing.rule(drawing.left(tick), kTop, drawing.left(tick), bottom);
  for (const double tick : make_ticks(drawing.y, kYTicks))
    drawing.rule(kLeft, drawing.top(tick), kWidth - kRight, drawing.top(tick));
  drawing.svg += "</g>\n";
  for (const double tick : make_ticks(drawing.x, kXTicks, kOneStep))
    drawing.text(drawing.left(tick), bottom + 18, "middle", svg_x_number(tick));
  for (const double tick : make_ticks(drawing.y, kYTicks))
    drawing.text(kLeft - 8, drawing.top(tick) + 4, "end", format_y(drawing.y, tick, 3, kYTicks));
  drawing.text(kWidth - kRight, kHeight - 6, "end",
               x_name + (drawing.y.logarithmic ? ", y axis logarithmic" : ""));
}

// Averages the points on each pixel, because a long run has far more points than the image has
// pixels. A value that is not finite leaves a gap.
std::string line_of(const SvgDrawing& drawing, const Curve& curve) {
  std::string path;
  bool starts_path = true;
  const auto& points = curve.points;
  for (size_t i = 0; i < points.size();) {
    if (!is_finite(points[i])) {
      starts_path = true;
      ++i;
      continue;
    }
    const double pixel = std::round(drawing.left(points[i].first));
    double sum = 0;
    int count = 0;
    for (; i < points.size() && is_finite(points[i]) &&
           std::round(drawing.left(points[i].first)) == pixel;
         ++i, ++count)
      sum += drawing.top(points[i].second);
    path += (starts_path ? "M" : "L") + number(pixel) + " " + number(sum / count);
    starts_path = false;
  }
  return path;
}

void draw(SvgDrawing& drawing, const Curve& curve, std::string_view color) {
  const bool marks = curve.kind == Curve::Kind::kMarks;
  drawing.svg += "<path fill=\"none\" stroke=\"" + std::string(color) + "\" stroke-width=\"" +
                 (marks ? "1" : "1.6") + "\" d=\"" + line_of(drawing, curve) + "\"/>\n";
  const auto finite = std::count_if(curve.points.begin(), curve.points.end(), is_finite);
  if (!marks && finite > 1) return;  // a line of one point would be invisible
  for (const auto& point : curve.points) {
    if (!is_finite(point)) continue;
    drawing.svg += "<circle cx=\"" + number(drawing.left(point.first)) + "\" cy=\"" +
                   number(drawing.top(point.second)) + "\" r=\"3\" fill=\"" + std::string(color) +
                   "\"/>\n";
  }
}

constexpr double kLegendRow = 18;

// Returns the height of the rows after the first.
double draw_legend(SvgDrawing& drawing, const std::vector<Curve>& curves) {
  constexpr double kLetter = 7.5;
  double at = kLeft, row = 0;
  for (size_t i = 0; i < curves.size(); ++i) {
    const double width = 20 + kLetter * static_cast<double>(curves[i].name.size());
    if (at > kLeft && at + width > kWidth) {
      at = kLeft;
      row += kLegendRow;
    }
    drawing.svg += "<rect x=\"" + number(at) + "\" y=\"" + number(14 + row) +
                   "\" width=\"14\" height=\"4\" fill=\"" +
                   std::string(kColors[i % kColors.size()]) + "\"/>\n";
    drawing.text(at + 20, 20 + row, "start", curves[i].name);
    at += width + 20;
  }
  return row;
}

}  // namespace

std::string render_svg(const std::vector<Curve>& curves, const std::string& x_name) {
  const auto x = try_make_axis(curves, false);
  const auto y = try_make_axis(curves, true);
  if (!x.has_value() || !y.has_value()) return "";
  SvgDrawing drawing{*x, *y, {}};
  const double legend_height = draw_legend(drawing, curves);
  const std::string shown_legend = std::exchange(drawing.svg, {});
  draw_axes(drawing, x_name);
  for (size_t i = 0; i < curves.size(); ++i) draw(drawing, curves[i], kColors[i % kColors.size()]);
  if (legend_height > 0)
    drawing.svg =
        "<g transform=\"translate(0 " + number(legend_height) + ")\">\n" + drawing.svg + "</g>\n";
  const std::string height = std::to_string(static_cast<int>(kHeight + legend_height));
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 " + height +
         "\" width=\"720\" height=\"" + height +
         "\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#777\">\n" + drawing.svg +
         shown_legend + "</svg>\n";
}

}  // namespace stoker::ctl
