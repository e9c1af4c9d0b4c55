#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "ctl/text_format.h"
#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

TEST(NumberFormatTest, FormatsNumbersShortWithSignificantDigits) {
  EXPECT_EQ(format_number(1.23456, 5), "1.2346");
  EXPECT_EQ(format_number(12.3456, 4), "12.35");
  EXPECT_EQ(format_number(0, 3), "0.00");
  EXPECT_EQ(format_number(1234.5, 3), "1234");
  EXPECT_EQ(format_number(3.2e8, 3), "3.20e+08");
  EXPECT_EQ(format_number(std::numeric_limits<double>::quiet_NaN(), 5), "NaN");
  EXPECT_EQ(format_number(-std::numeric_limits<double>::infinity(), 5), "-inf");
  for (const double value : {1e-308, -1e-308, 1e308, -1e308, 999999.0, -0.00012345, 1e-4})
    EXPECT_LE(format_number(value, 5).size(), 10u) << value;
}

TEST(NumberFormatTest, GroupsCountsByThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1 000");
  EXPECT_EQ(format_count(1234567), "1 234 567");
  EXPECT_EQ(format_count(std::numeric_limits<uint64_t>::max()), "18 446 744 073 709 551 615");
}

TEST(NumberFormatTest, FormatsBytesAndDurations) {
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(4'815'162), "4.82 MB");
  EXPECT_EQ(format_bytes(999'600), "1.00 MB");
  EXPECT_EQ(format_bytes(std::numeric_limits<uint64_t>::max()), "18.4 EB");
  EXPECT_EQ(format_duration(0.52), "0.5 s");
  EXPECT_EQ(format_duration(59.6), "60 s");
  EXPECT_EQ(format_duration(242), "4 min 2 s");
  EXPECT_EQ(format_duration(11'240), "3 h 7 min");
  EXPECT_EQ(format_estimate(0.2), "1 s");
  EXPECT_EQ(format_estimate(67), "67 s");
  EXPECT_EQ(format_estimate(242), "4 min");
  EXPECT_EQ(format_estimate(204), "3 min 20 s");
  EXPECT_EQ(format_estimate(1637), "27 min");
  EXPECT_EQ(format_estimate(11'240), "3 h 7 min");
  EXPECT_EQ(format_duration(190'000), "2 d 4 h");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::quiet_NaN()), "?");
}

TEST(NumberFormatTest, FormatsMillisecondsWithoutExponents) {
  EXPECT_EQ(format_milliseconds(1234.5), "1234");
  EXPECT_EQ(format_milliseconds(25.34), "25.3");
  EXPECT_EQ(format_milliseconds(0.25), "0.25");
  EXPECT_EQ(format_milliseconds(0.016), "0.02");
  EXPECT_EQ(format_milliseconds(0.0006), "<0.01");
  EXPECT_EQ(format_milliseconds(1e-9), "<0.01");
  EXPECT_EQ(format_milliseconds(0), "0.00");
}

TEST(TextTableTest, AlignsNumbersRightAndTextLeft) {
  TextTable table({{.title = "step"}, {.title = "train\nloss"}, {.title = "file", .left = true}});
  table.add({"1 000", "2.5", "a.h"});
  table.add({"10", "NaN", "größer.h"});
  EXPECT_EQ(table.render(kPiped),
            "         train\n"
            "   step   loss  file\n"
            "  -----  -----  --------\n"
            "  1 000    2.5  a.h\n"
            "     10    NaN  größer.h\n");
}

TEST(TextTableTest, DropsOnlyOptionalColumnsOnNarrowTerminal) {
  TextTable table({{.title = "step"},
                   {.title = "loss"},
                   {.title = "samples/s", .can_drop = true},
                   {.title = "stall", .can_drop = true}});
  table.add({"1", "2", "3", "4"});
  TextStyle style = kPiped;
  style.columns = 24;
  EXPECT_EQ(table.render(style).find("stall"), std::string::npos);
  EXPECT_NE(table.render(style).find("samples/s"), std::string::npos);
  style.columns = 1;
  EXPECT_EQ(table.render(style), "  step  loss\n  ----  ----\n     1     2\n");
}

TEST(TextTableTest, WrapsLongTitlesNearMiddle) {
  EXPECT_EQ(wrapped_title("samples/s"), "samples/s");
  EXPECT_EQ(wrapped_title("valid loss"), "valid loss");
  EXPECT_EQ(wrapped_title("bits per byte"), "bits\nper byte");
  EXPECT_EQ(wrapped_title("averyveryverylongword"), "averyveryverylongword");
}

TextStyle detect_style_with(bool is_terminal, int columns,
                            std::map<std::string, std::string> variables) {
  return detect_style(is_terminal, columns, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(TextStyleTest, UsesNoColorAndEightyColumnsInPipe) {
  const TextStyle style = detect_style_with(false, 200, {{"LANG", "C.UTF-8"}, {"TERM", "xterm"}});
  EXPECT_FALSE(style.color);
  EXPECT_FALSE(style.live);
  EXPECT_TRUE(style.unicode);
  EXPECT_EQ(style.columns, 80);
}

TEST(TextStyleTest, UsesColorOnTerminalUnlessDisabled) {
  EXPECT_TRUE(detect_style_with(true, 120, {{"TERM", "xterm"}}).color);
  EXPECT_EQ(detect_style_with(true, 120, {{"TERM", "xterm"}}).columns, 120);
  EXPECT_TRUE(detect_style_with(true, 120, {{"NO_COLOR", ""}}).color);
  EXPECT_FALSE(detect_style_with(true, 120, {{"NO_COLOR", "1"}}).color);
  EXPECT_FALSE(detect_style_with(true, 120, {{"TERM", "dumb"}}).color);
  EXPECT_EQ(detect_style_with(true, 0, {}).columns, 80);
}

TEST(TextStyleTest, UsesFirstLocaleThatIsSet) {
  EXPECT_FALSE(detect_style_with(true, 80, {}).unicode);
  EXPECT_FALSE(detect_style_with(true, 80, {{"LC_ALL", "C"}, {"LANG", "de_DE.UTF-8"}}).unicode);
  EXPECT_TRUE(detect_style_with(true, 80, {{"LC_ALL", ""}, {"LANG", "de_DE.utf8"}}).unicode);
}

}  // namespace
}  // namespace stoker::ctl
