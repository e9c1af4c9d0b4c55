#include "shared/base/utf8.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace stoker {
namespace {

TEST(Utf8Test, ReturnsLengthOfFirstCharacter) {
  EXPECT_EQ(utf8_character_bytes("ab"), 1u);
  EXPECT_EQ(utf8_character_bytes(std::string_view("\0", 1)), 1u);
  EXPECT_EQ(utf8_character_bytes("é"), 2u);
  EXPECT_EQ(utf8_character_bytes("€x"), 3u);
  EXPECT_EQ(utf8_character_bytes("😀"), 4u);
}

TEST(Utf8Test, RejectsInvalidCharacters) {
  for (const char* const text :
       {"", "\x80", "\x9b", "\xc0\xaf", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x80\xaf", "\xed\xa0\x80",
        "\xe2\x82", "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"})
    EXPECT_EQ(utf8_character_bytes(text), 0u) << testing::PrintToString(text);
}

TEST(Utf8Test, DetectsControlCharacters) {
  for (const char* const control :
       {"\x01", "\x1b", "\x7f", "\u0080", "\u009b", "\u009f", "\u061c", "\u200e", "\u200f",
        "\u2028", "\u2029", "\u202a", "\u202e", "\u2066", "\u2069"})
    EXPECT_TRUE(is_control_character(control)) << testing::PrintToString(control);
  for (const char* const letter :
       {" ", "a", "~", "\u00a0", "é", "\u061b", "\u200d", "\u2027", "\u202f", "\u206a", "😀"})
    EXPECT_FALSE(is_control_character(letter)) << letter;
}

TEST(Utf8Test, PreservesValidTextAndReplacesInvalidBytes) {
  EXPECT_EQ(valid_utf8("plain \xc3\xa4 \xf0\x9f\x94\xa5"), "plain \xc3\xa4 \xf0\x9f\x94\xa5");
  constexpr std::string_view kBad = "\xEF\xBF\xBD";
  for (const char* text : {"\x80", "\xff", "\xc3", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80",
                           "\xf4\x90\x80\x80", "\xe2\x82", "\xf0\x9f\x94"}) {
    std::string expected;
    for (size_t i = 0; i < std::string_view(text).size(); ++i) expected += kBad;
    EXPECT_EQ(valid_utf8(text), expected) << text;
  }
}

TEST(Utf8Test, ReplacesControlCharactersInPrintableText) {
  EXPECT_EQ(printable("a\x1b[2J\nb\t\x7f"), "a?[2J?b??");
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J"),
            "?2J");
  EXPECT_EQ(printable("a\u202eb\x9b\xff"), "a?b??");
  EXPECT_EQ(printable("naïve ✓"), "naïve ✓");
}

TEST(Utf8Test, QuotesAndTruncatesTextForMessages) {
  EXPECT_EQ(quote_for_message("a\x1b"), "'a?'");
  EXPECT_EQ(quote_for_message("abc", 3), "'abc'");
  EXPECT_EQ(quote_for_message("abcd", 3), "'abc…'");
  EXPECT_EQ(quote_for_message("a✓b", 2), "'a…'") << "no part of a character";
  EXPECT_EQ(quote_for_message("\x80\x80\x80\x80\x80\x80", 5), "'??…'");
}

TEST(JoinTest, PutsSeparatorBetweenWords) {
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(join({"one"}, ", "), "one");
  EXPECT_EQ(join({"one", "two", "three"}, " | "), "one | two | three");
  EXPECT_EQ(join({"", "two", ""}, ","), ",two,");
}

}  // namespace
}  // namespace stoker
