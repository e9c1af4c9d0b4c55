#include "daemon/ctl/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

namespace stoker::ctl {
namespace {

constexpr double kLogFactor =
    100;  // from this ratio of largest to smallest on, the y axis is logarithmic
constexpr int kLabelColumns = 9;
constexpr std::array<std::string_view, 4> kColours{"\x1b[36m", "\x1b[33m", "\x1b[35m", "\x1b[32m"};
constexpr std::string_view kNoColour = "\x1b[0m";

// One axis: values to 0..1.
struct Axis {
  double low = 0;
  double high = 1;
  bool logarithmic = false;

  double at(double value) const {
    if (logarithmic) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
    // Halves, so that the width of the widest range is still a number.
    return (value / 2 - low / 2) / (high / 2 - low / 2);
  }
  double value_at(double part) const {
    if (logarithmic) return std::exp(std::log(low) + part * (std::log(high) - std::log(low)));
    return low + part * (high / 2 - low / 2) * 2;
  }
};

std::optional<Axis> maybe_axis(const std::vector<Curve>& curves, bool of_y) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const Curve& curve : curves) {
    for (const auto& [x, y] : curve.points) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      low = std::min(low, of_y ? y : x);
      high = std::max(high, of_y ? y : x);
    }
  }
  if (low > high) return std::nullopt;
  Axis axis{low, high, of_y && low > 0 && high / low > kLogFactor};
  if (low == high) {  // a constant stands in the middle
    const double room = low == 0 ? 1 : std::abs(low) / 2;
    axis = {low - room, high + room, false};
  }
  return axis;
}

// The drawing area: cells of characters, each a small grid of dots.
class Canvas {
 public:
  Canvas(int columns, int rows, bool unicode)
      : columns_(columns),
        rows_(rows),
        unicode_(unicode),
        cells_(static_cast<size_t>(columns * rows)) {}

  int dots_wide() const { return columns_ * (unicode_ ? 2 : 1); }
  int dots_high() const { return rows_ * (unicode_ ? 4 : 2); }

  void dot(int x, int y, int owner) {
    const int wide = unicode_ ? 2 : 1;
    const int high = unicode_ ? 4 : 2;
    Cell& cell = cell_at(x / wide, y / high);
    cell.dots |= static_cast<uint8_t>(1 << ((y % high) * wide + x % wide));
    if (!cell.marked) cell.owner = owner;
  }
  void mark(int x, int y, int owner) {
    Cell& cell = cell_at(x / (unicode_ ? 2 : 1), y / (unicode_ ? 4 : 2));
    cell.marked = true;
    cell.owner = owner;
  }
  // Straight, one dot at each step of the longer side.
  void line(int x0, int y0, int x1, int y1, int owner) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      const double part = static_cast<double>(i) / steps;
      dot(x0 + static_cast<int>(std::lround(part * (x1 - x0))),
          y0 + static_cast<int>(std::lround(part * (y1 - y0))), owner);
    }
  }

  std::string row_text(int row, bool colour) const {
    std::string text;
    int blanks = 0;
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = cells_[static_cast<size_t>(row * columns_ + column)];
      if (!cell.marked && cell.dots == 0) {
        ++blanks;
        continue;
      }
      text.append(static_cast<size_t>(blanks), ' ');
      blanks = 0;
      if (colour) text += kColours[static_cast<size_t>(cell.owner) % kColours.size()];
      text += glyph(cell);
      if (colour) text += kNoColour;
    }
    return text;
  }

 private:
  struct Cell {
    uint8_t dots = 0;  // bit = y * dots a row + x
    bool marked = false;
    int owner = 0;
  };
  Cell& cell_at(int column, int row) {
    column = std::clamp(column, 0, columns_ - 1);
    row = std::clamp(row, 0, rows_ - 1);
    return cells_[static_cast<size_t>(row * columns_ + column)];
  }
  std::string glyph(const Cell& cell) const {
    if (cell.marked) return unicode_ ? "●" : "o";
    if (!unicode_) return std::array<const char*, 4>{" ", "'", ".", ":"}[cell.dots & 3];
    // Braille numbers its dots down the left column, then the right one, the lowest row last.
    constexpr std::array<int, 8> kBrailleBit{0, 3, 1, 4, 2, 5, 6, 7};
    int pattern = 0;
    for (size_t dot = 0; dot < 8; ++dot)
      if ((cell.dots >> dot & 1) != 0) pattern |= 1 << kBrailleBit[dot];
    const int code = 0x2800 + pattern;
    return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
            static_cast<char>(0x80 | (code & 0x3F))};
  }

  const int columns_;
  const int rows_;
  const bool unicode_;
  std::vector<Cell> cells_;
};

struct Frame {
  Axis x;
  Axis y;
  int dot_x(double value, const Canvas& canvas) const {
    return static_cast<int>(std::lround(x.at(value) * (canvas.dots_wide() - 1)));
  }
  int dot_y(double value, const Canvas& canvas) const {
    return canvas.dots_high() - 1 -
           static_cast<int>(std::lround(y.at(value) * (canvas.dots_high() - 1)));
  }
};

void draw_marks(Canvas& canvas, const Frame& frame, const Curve& curve, int owner) {
  for (const auto& [x, y] : curve.points)
    if (std::isfinite(x) && std::isfinite(y))
      canvas.mark(frame.dot_x(x, canvas), frame.dot_y(y, canvas), owner);
}

// Points that fall into one column of dots become their mean: a long run has far more points than
// the screen.
void draw_line(Canvas& canvas, const Frame& frame, const Curve& curve, int owner) {
  std::optional<std::pair<int, int>> before;  // nothing: begin anew
  for (size_t i = 0; i < curve.points.size();) {
    const auto [x, y] = curve.points[i];
    if (!std::isfinite(x) || !std::isfinite(y)) {
      before.reset();
      ++i;
      continue;
    }
    const int column = frame.dot_x(x, canvas);
    double sum = 0;
    int count = 0;
    for (; i < curve.points.size() && std::isfinite(curve.points[i].first) &&
           std::isfinite(curve.points[i].second) &&
           frame.dot_x(curve.points[i].first, canvas) == column;
         ++i, ++count)
      sum += frame.y.at(curve.points[i].second);
    const int row = canvas.dots_high() - 1 -
                    static_cast<int>(std::lround(sum / count * (canvas.dots_high() - 1)));
    if (before.has_value()) {
      canvas.line(before->first, before->second, column, row, owner);
    } else {
      canvas.dot(column, row, owner);
    }
    before = {column, row};
  }
}

std::string right_aligned(const std::string& text, int columns) {
  const int missing = columns - static_cast<int>(text.size());
  return std::string(static_cast<size_t>(std::max(missing, 0)), ' ') + text;
}

std::string x_labels(const Axis& axis, int columns, const std::string& name) {
  const auto number = [](double value) {
    return value >= 0 && value < 1e15 ? format_count(static_cast<uint64_t>(std::llround(value)))
                                      : format_number(value, 3);
  };
  const std::string left = number(axis.low);
  const std::string right = number(axis.high) + " " + name;
  const std::string middle = number(axis.value_at(0.5));
  std::string line(
      static_cast<size_t>(std::max<int>(columns, static_cast<int>(left.size() + right.size()) + 1)),
      ' ');
  const auto put = [&line](size_t at, const std::string& text) {
    line.replace(at, text.size(), text);
  };
  put(0, left);
  put(line.size() - right.size(), right);
  const size_t at = line.size() / 2 - middle.size() / 2;
  if (at > left.size() + 2 && at + middle.size() + 2 < line.size() - right.size()) put(at, middle);
  return line;
}

std::string legend(const std::vector<Curve>& curves, const Axis& y, const ReportStyle& style) {
  std::string line;
  for (size_t i = 0; i < curves.size(); ++i) {
    const bool marks = curves[i].kind == Curve::Kind::kMarks;
    const std::string sign = style.unicode ? (marks ? "●" : "⠤⠤") : (marks ? "o" : "..");
    line += i > 0 ? "   " : "";
    line += style.colour
                ? std::string(kColours[i % kColours.size()]) + sign + std::string(kNoColour)
                : sign;
    line += " " + curves[i].name;
  }
  if (y.logarithmic) line += "   (logarithmic)";
  return line;
}

}  // namespace

std::string format_number(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[40];
  const double size = std::abs(value);
  if (size != 0 && (size >= 1e6 || size < 1e-4)) {
    std::snprintf(text, sizeof text, "%.*e", std::min(digits, 3) - 1, value);
  } else {
    const int whole = size < 1 ? 1 : static_cast<int>(std::log10(size)) + 1;
    std::snprintf(text, sizeof text, "%.*f", std::max(0, digits - whole), value);
  }
  return text;
}

std::string format_count(uint64_t value) {
  std::string text = std::to_string(value);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, " ");
  return text;
}

std::string render_plot(const std::vector<Curve>& curves, const std::string& x_name,
                        const ReportStyle& style) {
  const auto x = maybe_axis(curves, false);
  const auto y = maybe_axis(curves, true);
  if (!x.has_value() || !y.has_value()) return "";
  const int columns = std::clamp(style.columns, 40, 160);
  const int width = columns - kLabelColumns - 2;
  const int rows = std::clamp(columns / 6, 8, 20);
  Canvas canvas(width, rows, style.unicode);
  const Frame frame{*x, *y};
  for (size_t i = 0; i < curves.size(); ++i) {
    const auto draw = curves[i].kind == Curve::Kind::kLine ? draw_line : draw_marks;
    draw(canvas, frame, curves[i], static_cast<int>(i));
  }
  const std::string indent(kLabelColumns + 1, ' ');
  std::string out = indent + " " + legend(curves, *y, style) + "\n";
  for (int row = 0; row < rows; ++row) {
    // A number at every fourth row, and at the last.
    const bool labelled = row == rows - 1 || (row % 4 == 0 && rows - row > 3);
    const double part = rows == 1 ? 0.5 : 1 - static_cast<double>(row) / (rows - 1);
    const std::string label = labelled ? format_number(y->value_at(part), 4) : "";
    out += right_aligned(label, kLabelColumns) + " " +
           (style.unicode ? (labelled ? "┤" : "│") : (labelled ? "+" : "|"));
    out += canvas.row_text(row, style.colour) + "\n";
  }
  std::string rule;
  for (int i = 0; i < width; ++i) rule += style.unicode ? "─" : "-";
  out += indent + (style.unicode ? "└" : "+") + rule + "\n";
  return out + indent + " " + x_labels(*x, width, x_name) + "\n";
}

}  // namespace stoker::ctl
