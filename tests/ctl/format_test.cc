#include <map>

#include <gtest/gtest.h>

#include "ctl/text_format.h"
#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

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
