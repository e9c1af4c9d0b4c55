#include "daemon/ctl/plot.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Curve line_of(std::vector<std::pair<double, double>> points) {
  return {.name = "train loss", .kind = Curve::Kind::kLine, .points = std::move(points)};
}

size_t lines_of(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

// The drawing, without legend, labels and axes.
std::string drawing_of(const std::string& plot) {
  std::istringstream lines(plot);
  std::string line, drawing;
  while (std::getline(lines, line))
    if (line.size() > 10 && (line[10] == '|' || (line[10] == '+' && line.find("---") > 20)))
      drawing += line.substr(11) + "\n";
  return drawing;
}

TEST(Plot, DrawsAFallingLineFromUpperLeftToLowerRight) {
  const std::string plot = render_plot({line_of({{0, 3}, {100, 1}})}, "steps", 8, kPiped);
  const std::string drawing = drawing_of(plot);
  ASSERT_EQ(lines_of(drawing), 8u) << plot;
  EXPECT_EQ(drawing.find_first_not_of(" \n"), 0u) << plot;
  const std::string last = drawing.substr(drawing.rfind('\n', drawing.size() - 2) + 1);
  EXPECT_EQ(last.size(), 80u - 12 + 1) << "it does not reach the right border\n" << plot;
  EXPECT_THAT(plot, HasSubstr("    3.000 +"));
  EXPECT_THAT(plot, HasSubstr("    1.000 +"));
  EXPECT_THAT(plot, HasSubstr("100 steps\n"));
  EXPECT_THAT(plot, HasSubstr(".. train loss"));
}

TEST(Plot, IsPlainAsciiWhereNothingElseIsWanted) {
  const std::string plot = render_plot({line_of({{0, 3}, {100, 1}})}, "steps", 8, kPiped);
  for (const char c : plot) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << int{c};
}

TEST(Plot, NeverIsWiderThanTheTerminal) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 20'000; ++i) points.emplace_back(i * 10, 2 + std::sin(i / 500.0));
  for (const int columns : {40, 80, 120, 160}) {
    for (TextStyle style : {kPiped, kTerminal}) {
      style.columns = columns;
      const std::string plot = render_plot({line_of(points)}, "steps", 12, style);
      EXPECT_LE(widest_line(plot), static_cast<size_t>(columns)) << plot;
      EXPECT_EQ(lines_of(plot), 15u);
    }
  }
}

TEST(Plot, ColoursOnlyWhenAsked) {
  TextStyle style = kTerminal;
  EXPECT_THAT(render_plot({line_of({{0, 3}, {9, 1}})}, "steps", 8, style), HasSubstr("\x1b["));
  style.colour = false;
  EXPECT_THAT(render_plot({line_of({{0, 3}, {9, 1}})}, "steps", 8, style), Not(HasSubstr("\x1b")));
}

TEST(Plot, NothingFiniteGivesNothing) {
  EXPECT_EQ(render_plot({}, "steps", 8, kPiped), "");
  EXPECT_EQ(render_plot({line_of({})}, "steps", 8, kPiped), "");
  EXPECT_EQ(render_plot({line_of({{1, kNan}, {2, HUGE_VAL}})}, "steps", 8, kPiped), "");
}

TEST(Plot, ASinglePointIsSeen) {
  const std::string plot = render_plot({line_of({{10, 2.5}})}, "steps", 8, kPiped);
  EXPECT_EQ(std::count(plot.begin(), plot.end(), 'o') - 1, 1) << plot;  // "train loss" has one
}

TEST(Plot, NotANumberLeavesAGap) {
  const std::string whole =
      drawing_of(render_plot({line_of({{0, 1}, {50, 1}, {100, 2}})}, "steps", 8, kPiped));
  const std::string gap =
      drawing_of(render_plot({line_of({{0, 1}, {50, kNan}, {100, 2}})}, "steps", 8, kPiped));
  const auto dots = [](const std::string& text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return c != ' ' && c != '\n'; });
  };
  EXPECT_GT(dots(whole), 60);
  EXPECT_EQ(dots(gap), 2);
}

TEST(Plot, AWideSpanIsLogarithmicAndSaysSo) {
  EXPECT_THAT(render_plot({line_of({{0, 1000}, {9, 0.1}})}, "steps", 8, kPiped),
              HasSubstr("(logarithmic)"));
  EXPECT_THAT(render_plot({line_of({{0, 1000}, {9, -0.1}})}, "steps", 8, kPiped),
              Not(HasSubstr("(logarithmic)")));
}

TEST(Plot, SurvivesTheLargestAndSmallestNumbers) {
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
    const std::string plot = render_plot({line_of(points)}, "steps", 8, kPiped);
    EXPECT_EQ(lines_of(plot), 11u) << plot;
    EXPECT_LE(widest_line(plot), 81u) << plot;
  }
}

TEST(Plot, AHostileNameCannotReachTheTerminal) {
  Curve curve = line_of({{0, 1}, {1, 2}});
  curve.name = "valid\x1b[2J loss";
  EXPECT_THAT(render_plot({curve}, "steps", 8, kPiped), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace stoker::ctl
