#include "ctl/plot_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string_view>

#include "ctl/number_format.h"

namespace stoker::ctl {
namespace {

constexpr double kWidth = 720, kHeight = 400;
constexpr double kLeft = 64, kRight = 36, kTop = 36, kBottom = 44;
constexpr int kXTicks = 6, kYTicks = 6;
constexpr double kOneStep = 1;
constexpr std::array<std::string_view, 4> kColors{"#1f77b4", "#e6761a", "#9a4fb5", "#2a9d5c"};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
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

std::string tick_label(double value) {
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
    drawing.text(drawing.left(tick), bottom + 18, "middle", tick_label(tick));
  for (const double tick : make_ticks(drawing.y, kYTicks))
    drawing.text(kLeft - 8, drawing.top(tick) + 4, "end", format_y(drawing.y, tick, 3, kYTicks));
  drawing.text(kWidth - kRight, kHeight - 6, "end",
               x_name + (drawing.y.logarithmic ? " (logarithmic upwards)" : ""));
}

// Points that fall onto one pixel become their mean: a long run has far more points than the
// picture. What is not finite leaves a gap.
std::string line_of(const SvgDrawing& drawing, const Curve& curve) {
  std::string path;
  bool begins = true;
  const auto& points = curve.points;
  for (size_t i = 0; i < points.size();) {
    if (!is_finite(points[i])) {
      begins = true;
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
    path += (begins ? "M" : "L") + number(pixel) + " " + number(sum / count);
    begins = false;
  }
  return path;
}

void draw(SvgDrawing& drawing, const Curve& curve, std::string_view color) {
  const bool marks = curve.kind == Curve::Kind::kMarks;
  drawing.svg += "<path fill=\"none\" stroke=\"" + std::string(color) + "\" stroke-width=\"" +
                 (marks ? "1" : "1.6") + "\" d=\"" + line_of(drawing, curve) + "\"/>\n";
  const auto finite = std::count_if(curve.points.begin(), curve.points.end(), is_finite);
  if (!marks && finite > 1) return;  // a line of one point would be nothing
  for (const auto& point : curve.points) {
    if (!is_finite(point)) continue;
    drawing.svg += "<circle cx=\"" + number(drawing.left(point.first)) + "\" cy=\"" +
                   number(drawing.top(point.second)) + "\" r=\"3\" fill=\"" + std::string(color) +
                   "\"/>\n";
  }
}

void draw_legend(SvgDrawing& drawing, const std::vector<Curve>& curves) {
  constexpr double kLetter = 7.5;
  double at = kLeft;
  for (size_t i = 0; i < curves.size(); ++i) {
    drawing.svg += "<rect x=\"" + number(at) + "\" y=\"14\" width=\"14\" height=\"4\" fill=\"" +
                   std::string(kColors[i % kColors.size()]) + "\"/>\n";
    drawing.text(at + 20, 20, "start", curves[i].name);
    at += 20 + kLetter * static_cast<double>(curves[i].name.size()) + 20;
  }
}

}  // namespace

std::string render_svg(const std::vector<Curve>& curves, const std::string& x_name) {
  const auto x = try_make_x_axis(curves);
  const auto y = try_make_y_axis(curves);
  if (!x.has_value() || !y.has_value()) return "";
  SvgDrawing drawing{*x, *y, {}};
  drawing.svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 400\" width=\"720\" "
      "height=\"400\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#777\">\n";
  draw_axes(drawing, x_name);
  for (size_t i = 0; i < curves.size(); ++i) draw(drawing, curves[i], kColors[i % kColors.size()]);
  draw_legend(drawing, curves);
  return drawing.svg + "</svg>\n";
}

}  // namespace stoker::ctl
