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

TEST(Utf8Test, KeepsLineBreaksOfPrintableLines) {
  EXPECT_EQ(printable_lines("a\x1b[2J\nb\r\nc\u009b\x80\n"), "a?[2J\nb?\nc??\n");
  EXPECT_EQ(printable_lines("error\nforged", "  "), "error\n  forged");
  EXPECT_EQ(printable_lines("error\n\n", "  "), "error\n  \n");
  EXPECT_EQ(printable_lines("", "  "), "");
}

// Every control character of C0 but the line break, DEL, C1, and the bidirectional ones.
TEST(Utf8Test, LeavesNoControlCharacter) {
  std::string all;
  for (int c = 1; c < 0x20; ++c)
    if (c != '\n') all += static_cast<char>(c);
  all += '\x7f';
  for (int c = 0x80; c < 0xa0; ++c) all += std::string("\xc2") + static_cast<char>(c);
  for (const int last : {0xaa, 0xab, 0xac, 0xad, 0xae})
    all += std::string("\xe2\x80") + static_cast<char>(last);
  for (const int last : {0xa6, 0xa7, 0xa8, 0xa9})
    all += std::string("\xe2\x81") + static_cast<char>(last);
  constexpr size_t kCharacters = 30 + 1 + 32 + 5 + 4;
  EXPECT_EQ(printable(all), std::string(kCharacters, '?'));
  EXPECT_EQ(printable_lines(all), std::string(kCharacters, '?'));
}

TEST(Utf8Test, EscapesControlCharactersOfJson) {
  EXPECT_EQ(printable_json("{\"a\":\"\u009b\x7f\u202e\"}\n"), R"({"a":"\u009b\u007f\u202e"})"
                                                              "\n");
  EXPECT_EQ(printable_json("\"é✓\\u001b\""), "\"é✓\\u001b\"");
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
