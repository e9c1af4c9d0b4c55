#include "ctl/plot.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Curve make_curve(std::vector<std::pair<double, double>> points) {
  return {.name = "train loss", .kind = Curve::Kind::kLine, .points = std::move(points)};
}

size_t count_lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

// The plot area, without legend, labels and axes.
std::string plot_area(const std::string& plot) {
  std::istringstream lines(plot);
  std::string line, area;
  while (std::getline(lines, line))
    if (line.size() > 10 && (line[10] == '|' || (line[10] == '+' && line.find("---") > 20)))
      area += line.substr(11) + "\n";
  return area;
}

TEST(TextPlotTest, RendersFallingCurveFromUpperLeftToLowerRight) {
  const std::string plot = render_plot({make_curve({{0, 3}, {100, 1}})}, "steps", 8, kPiped);
  const std::string area = plot_area(plot);
  ASSERT_EQ(count_lines(area), 8u) << plot;
  EXPECT_EQ(area.find_first_not_of(" \n"), 0u) << plot;
  const std::string last = area.substr(area.rfind('\n', area.size() - 2) + 1);
  EXPECT_EQ(last.size(), 80u - 12 + 1) << "it must reach the right border\n" << plot;
  EXPECT_THAT(plot, HasSubstr("    3.000 +"));
  EXPECT_THAT(plot, HasSubstr("    1.000 +"));
  EXPECT_THAT(plot, HasSubstr("100 steps\n"));
  EXPECT_THAT(plot, HasSubstr(".. train loss"));
}

TEST(TextPlotTest, RendersPlainAsciiWithoutUnicode) {
  const std::string plot = render_plot({make_curve({{0, 3}, {100, 1}})}, "steps", 8, kPiped);
  for (const char c : plot) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << int{c};
}

TEST(TextPlotTest, FitsTerminalWidth) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 20'000; ++i) points.emplace_back(i * 10, 2 + std::sin(i / 500.0));
  for (const int columns : {40, 80, 120, 160}) {
    for (TextStyle style : {kPiped, kTerminal}) {
      style.columns = columns;
      const std::string plot = render_plot({make_curve(points)}, "steps", 12, style);
      EXPECT_LE(widest_line(plot), static_cast<size_t>(columns)) << plot;
      EXPECT_EQ(count_lines(plot), 15u);
    }
  }
}

TEST(TextPlotTest, UsesColorOnlyWhenEnabled) {
  TextStyle style = kTerminal;
  EXPECT_THAT(render_plot({make_curve({{0, 3}, {9, 1}})}, "steps", 8, style), HasSubstr("\x1b["));
  style.color = false;
  EXPECT_THAT(render_plot({make_curve({{0, 3}, {9, 1}})}, "steps", 8, style),
              Not(HasSubstr("\x1b")));
}

TEST(TextPlotTest, ReturnsEmptyTextWithoutFinitePoints) {
  EXPECT_EQ(render_plot({}, "steps", 8, kPiped), "");
  EXPECT_EQ(render_plot({make_curve({})}, "steps", 8, kPiped), "");
  EXPECT_EQ(render_plot({make_curve({{1, kNan}, {2, HUGE_VAL}})}, "steps", 8, kPiped), "");
}

TEST(TextPlotTest, RendersSinglePoint) {
  const std::string plot = render_plot({make_curve({{10, 2.5}})}, "steps", 8, kPiped);
  // the legend "train loss" contains one
  EXPECT_EQ(std::count(plot.begin(), plot.end(), 'o') - 1, 1) << plot;
}

TEST(TextPlotTest, CentersSinglePointBetweenAdjacentSteps) {
  const auto last_line = [](const std::string& plot) {
    return plot.substr(plot.rfind('\n', plot.size() - 2) + 1);
  };
  const auto labels_at = [&](double step) {
    std::istringstream words(
        last_line(render_plot({make_curve({{step, 2.5}})}, "steps", 8, kPiped)));
    return std::vector<std::string>(std::istream_iterator<std::string>(words), {});
  };
  EXPECT_THAT(labels_at(1), ElementsAre("0", "1", "2", "steps"));
  EXPECT_THAT(labels_at(500), ElementsAre("499", "500", "501", "steps"));
  EXPECT_THAT(render_svg({make_curve({{1, 2.5}})}, "steps"), Not(HasSubstr(">0.5")));
}

TEST(TextPlotTest, LabelsWholeStepsOnly) {
  const std::string plot = render_plot({make_curve({{1, 3}, {2, 1}})}, "steps", 8, kPiped);
  const std::string last = plot.substr(plot.rfind('\n', plot.size() - 2) + 1);
  EXPECT_EQ(std::count(last.begin(), last.end(), '2'), 1) << plot;
}

TEST(TextPlotTest, LeavesGapAtNan) {
  const std::string connected =
      plot_area(render_plot({make_curve({{0, 1}, {50, 1}, {100, 2}})}, "steps", 8, kPiped));
  const std::string gap =
      plot_area(render_plot({make_curve({{0, 1}, {50, kNan}, {100, 2}})}, "steps", 8, kPiped));
  const auto dots = [](const std::string& text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return c != ' ' && c != '\n'; });
  };
  EXPECT_GT(dots(connected), 60);
  EXPECT_EQ(dots(gap), 2);
}

TEST(TextPlotTest, UsesDistinctLabelsForSmallValuesAndNarrowRanges) {
  const std::string falls = render_svg({make_curve({{0, 2}, {9, 0.00004}})}, "steps");
  for (const std::string label : {">1.00<", ">0.10<", ">0.01<", ">0.001<", ">0.0001<"})
    EXPECT_THAT(falls, HasSubstr(label));
  EXPECT_THAT(falls, HasSubstr(">steps, y axis logarithmic<"));
  const std::string narrow = render_svg({make_curve({{0, 2.391}, {9, 2.388}})}, "steps");
  EXPECT_THAT(narrow, AllOf(HasSubstr(">2.388"), HasSubstr(">2.389"), HasSubstr(">2.390")));
  EXPECT_THAT(render_plot({make_curve({{0, 0.003}, {9, 0.001}})}, "steps", 9, kPiped),
              AllOf(HasSubstr("0.0030 "), HasSubstr("0.0010 ")));
  EXPECT_THAT(render_plot({make_curve({{0, 5.205}, {9, 1.578}})}, "steps", 9, kPiped),
              AllOf(HasSubstr("5.205 "), HasSubstr("1.578 ")));
}

TEST(TextPlotTest, UsesLabeledLogScaleForWideRange) {
  EXPECT_THAT(render_plot({make_curve({{0, 1000}, {9, 0.1}})}, "steps", 8, kPiped),
              HasSubstr("(logarithmic)"));
  EXPECT_THAT(render_plot({make_curve({{0, 1000}, {9, -0.1}})}, "steps", 8, kPiped),
              Not(HasSubstr("(logarithmic)")));
}

TEST(TextPlotTest, AcceptsExtremeValues) {
  constexpr double kMax = std::numeric_limits<double>::max();
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  for (const auto& points :
       std::vector<std::vector<std::pair<double, double>>>{{{0, -kMax}, {1, kMax}},
                                                           {{0, kMax}},
                                                           {{0, kTiny}},
                                                           {{0, kTiny}, {1, kMax}},
                                                           {{0, 0}, {1, kTiny}},
                                                           {{-kMax, 1}, {kMax, 2}},
                                                           {{0, 0}},
                                                           {{5, 1}, {4, 2}, {3, 3}}}) {
    const std::string plot = render_plot({make_curve(points)}, "steps", 8, kPiped);
    EXPECT_EQ(count_lines(plot), 11u) << plot;
    EXPECT_LE(widest_line(plot), 81u) << plot;
  }
}

TEST(TextPlotTest, EscapesControlCharactersInCurveName) {
  Curve curve = make_curve({{0, 1}, {1, 2}});
  curve.name = "valid\x1b[2J loss";
  EXPECT_THAT(render_plot({curve}, "steps", 8, kPiped), Not(HasSubstr("\x1b")));
}

TEST(PlotTicksTest, ReturnsRoundValuesInsideAxis) {
  EXPECT_THAT(make_ticks({0, 1000, false}, 5), ElementsAre(0, 200, 400, 600, 800, 1000));
  EXPECT_THAT(make_ticks({1.3, 2.9, false}, 4), ElementsAre(1.5, 2.0, 2.5));
  EXPECT_THAT(make_ticks({0.5, 250, true}, 3), ElementsAre(1, 10, 100));
  EXPECT_THAT(make_ticks({1, 10, true}, 4), ElementsAre(1, 2, 5, 10));
}

TEST(PlotTicksTest, LimitsTickCountForExtremeRanges) {
  constexpr double kMax = std::numeric_limits<double>::max();
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {-kMax, kMax}, {0, kTiny}, {1e17, 1e17 + 16}, {-5e-324, 5e-324}, {1e308, kMax}})
    EXPECT_LE(make_ticks({low, high, false}, 6).size(), 14u) << low << " to " << high;
}

// Whether the opening and closing tags match.
bool is_balanced(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.ends_with('/')) continue;
    const std::string name = tag.substr(0, tag.find(' '));
    if (!name.starts_with('/')) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name.substr(1)) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

TEST(SvgPlotTest, RendersFallingCurveAndMarkersInsideImage) {
  Curve marks = make_curve({{0, 2.5}, {100, 1.5}});
  marks.kind = Curve::Kind::kMarks;
  const std::string svg = render_svg({make_curve({{0, 3}, {100, 1}}), marks}, "steps");
  EXPECT_TRUE(is_balanced(svg)) << svg;
  EXPECT_THAT(svg, HasSubstr("d=\"M64.0 36.0L684.0 356.0\""));
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"684.0\" cy=\"276.0\""));
  EXPECT_THAT(svg, HasSubstr(">train loss</text>"));
}

TEST(SvgPlotTest, ReducesMillionPointsToSmallFile) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 1'000'000; ++i) points.emplace_back(i, 2 + std::sin(i / 5e4));
  EXPECT_LT(render_svg({make_curve(std::move(points))}, "steps").size(), 20'000u);
}

TEST(SvgPlotTest, LeavesGapAtNanAndIsEmptyWithoutFinitePoints) {
  const std::string svg =
      render_svg({make_curve({{0, 1}, {10, 2}, {50, kNan}, {90, 2}, {100, 1}})}, "steps");
  const std::string path = svg.substr(svg.find(" d=\"") + 4);
  EXPECT_EQ(std::count(path.begin(), path.begin() + static_cast<long>(path.find('"')), 'M'), 2);
  EXPECT_EQ(render_svg({make_curve({{1, kNan}})}, "steps"), "");
}

TEST(SvgPlotTest, WrapsLegendOfManyCurvesAboveThePlot) {
  std::vector<Curve> curves;
  for (int i = 0; i < 12; ++i) {
    curves.push_back(make_curve({{0, 1.0 + i}, {9, 1.0}}));
    curves.back().name = "a run with a long name " + std::to_string(i);
  }
  const std::string svg = render_svg(curves, "steps");
  EXPECT_TRUE(is_balanced(svg)) << svg;
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 720 454\""));
  EXPECT_THAT(svg, HasSubstr("<g transform=\"translate(0 54.0)\">"));
  EXPECT_THAT(svg, HasSubstr("y=\"74.0\" text-anchor=\"start\">a run with a long name 11<"));
}

TEST(SvgPlotTest, EscapesMarkupInCurveName) {
  Curve curve = make_curve({{0, 1}, {1, 2}});
  curve.name = "</text><script>x & y";
  const std::string svg = render_svg({curve}, "steps");
  EXPECT_TRUE(is_balanced(svg)) << svg;
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_THAT(svg, HasSubstr("&lt;script>x &amp; y"));
}

}  // namespace
}  // namespace stoker::ctl
