// Text that is YAML, or nearly, but nothing that a configuration may be.
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::string_literals;

TEST(RefusedYaml, AKeyGivenTwiceIsNamedWithBothPlaces) {
  EXPECT_THAT(mistakes(kData + "train:\n  steps: 5\n  batch: 1\n  steps: 6\n"),
              ElementsAre("my.yaml:5:3: train.steps: is here twice (first in line 3); remove one"));
  EXPECT_THAT(mistakes(kData + "log: {}\nlog: {}\n"),
              ElementsAre("my.yaml:3:1: log: is here twice (first in line 2); remove one"));
  EXPECT_THAT(mistakes("data: {train: {path: a}, train: {path: b}}\n"),
              ElementsAre(HasSubstr("data.train: is here twice")));
}

TEST(RefusedYaml, AnchorsAndAliases) {
  EXPECT_THAT(mistakes("data:\n  train: &t {path: a}\n  valid: *t\n"),
              ElementsAre(StartsWith("my.yaml:2:10: anchors and aliases")));
  EXPECT_THAT(mistakes(kData + "train: {steps: &n 5}\n"), ElementsAre(StartsWith("my.yaml:2:")));
  EXPECT_THAT(mistakes("*x"), ElementsAre(HasSubstr("anchors and aliases")));
  EXPECT_THAT(mistakes(kData + "train: &t\n"), ElementsAre(HasSubstr("anchors and aliases")));
}

TEST(RefusedYaml, Tags) {
  for (const char* const value :
       {"!!int 5", "!mine 5", "!<tag:x> 5", "!!python/object:os.system a"})
    EXPECT_THAT(
        mistakes(kData + "train:\n  steps: " + value + "\n"),
        ElementsAre(testing::AllOf(StartsWith("my.yaml:3:"), HasSubstr("tags are not read"))))
        << value;
}

TEST(RefusedYaml, ASecondDocument) {
  EXPECT_THAT(mistakes(kData + "---\ntrain: {steps: 5}\n"),
              ElementsAre(HasSubstr("a second document")));
  EXPECT_EQ(good("---\n" + kData), good(kData));
}

TEST(RefusedYaml, KeysThatAreNotWords) {
  EXPECT_THAT(mistakes(kData + "[a, b]: 5\n"), ElementsAre(HasSubstr("a key is a word")));
  EXPECT_THAT(mistakes(kData + "{a: b}: 5\n"), ElementsAre(HasSubstr("a key is a word")));
  EXPECT_THAT(mistakes(kData + "? [a]\n: 5\n"), ElementsAre(HasSubstr("a key is a word")));
  EXPECT_THAT(mistakes(kData + ": 5\n"), testing::SizeIs(1));
}

TEST(RefusedYaml, WhatIsNoYamlHasAPlace) {
  EXPECT_THAT(mistakes(kData + "train: {steps: 5\n"), ElementsAre(StartsWith("my.yaml:")));
  EXPECT_THAT(mistakes(kData + "train:\n\tsteps: 5\n"),
              ElementsAre(testing::AllOf(StartsWith("my.yaml:3:"), HasSubstr("tab"))));
  EXPECT_THAT(mistakes(kData + "train:\n  steps: 5\n batch: 3\n"),
              ElementsAre(StartsWith("my.yaml:")));
  EXPECT_THAT(mistakes(kData + "run: {dir: \"a}\n"), ElementsAre(StartsWith("my.yaml:")));
}

// ---- Depth and size

std::string nested(int depth, char open, const std::string& core, char close) {
  return std::string(static_cast<size_t>(depth), open) + core +
         std::string(static_cast<size_t>(depth), close);
}

TEST(RefusedYaml, NestingOver32Levels) {
  EXPECT_THAT(mistakes(kData + "train: " + nested(31, '[', "", ']') + "\n"),
              ElementsAre(HasSubstr("is a section")));
  EXPECT_THAT(mistakes(kData + "train: " + nested(32, '[', "", ']') + "\n"),
              ElementsAre(HasSubstr("nest deeper than 32")));
}

TEST(RefusedYaml, NestingOfAnyDepthIsEndedEarly) {
  constexpr int kDeep = 500'000;  // would take the stack of a parser that follows it
  EXPECT_THAT(mistakes(std::string(kDeep, '[')), testing::SizeIs(1));
  EXPECT_THAT(mistakes(std::string(kDeep, '{')), testing::SizeIs(1));
  std::string maps, lists;
  for (int i = 0; i < kDeep / 4; ++i) maps += "{a: ";
  for (int i = 0; i < kDeep / 4; ++i) lists += "- ";
  EXPECT_THAT(mistakes(maps), testing::SizeIs(1));
  EXPECT_THAT(mistakes(lists), testing::SizeIs(1));
  std::string questions;
  for (int i = 0; i < kDeep / 4; ++i) questions += "? ";
  EXPECT_THAT(mistakes(questions), testing::SizeIs(1));
}

TEST(RefusedYaml, TextOver1MiB) {
  std::string text = kData;
  text += "# " + std::string((1 << 20) - text.size() - 2, 'x');
  EXPECT_EQ(text.size(), size_t{1} << 20);
  EXPECT_EQ(good(text), good(kData));
  EXPECT_THAT(mistakes(text + "x"), ElementsAre(HasSubstr("larger than 1 MiB")));
}

// ---- Bytes that are not text

TEST(RefusedYaml, ANulByte) {
  EXPECT_THAT(mistakes(kData + "run: {dir: a\0b}\n"s),
              ElementsAre(testing::AllOf(StartsWith("my.yaml:2:13: "), HasSubstr("NUL"))));
  EXPECT_THAT(mistakes("\0"s), ElementsAre(HasSubstr("NUL")));
}

TEST(RefusedYaml, ControlCharacters) {
  // 0x04 is where yaml-cpp would take the text to end.
  for (const char c : {'\x01', '\x04', '\x1b', '\x7f'})
    EXPECT_THAT(mistakes(kData + "# " + c + "\n"),
                ElementsAre(testing::AllOf(StartsWith("my.yaml:2:3: "),
                                           HasSubstr("the control character 0x"))));
  EXPECT_THAT(mistakes(kData + "run: {dir: \"a\\u0007\"}\n"),
              ElementsAre(HasSubstr("must not hold a control character")));
}

TEST(RefusedYaml, InvalidUtf8) {
  const std::vector<std::string> bad = {
      "\xff",                  // never in UTF-8
      "\x80",                  // a follower without a first
      "\xc3",                  // a first without its follower (here: a newline)
      "\xc0\xaf",              // overlong
      "\xe0\x80\xaf",          // overlong
      "\xf0\x80\x80\xaf",      // overlong
      "\xed\xa0\x80",          // a surrogate
      "\xf4\x90\x80\x80",      // past the last
      "\xe2\x82",              // cut off
      "\xf8\x88\x80\x80\x80",  // five bytes
  };
  for (const std::string& bytes : bad)
    EXPECT_THAT(mistakes(kData + "# " + bytes + "\n"),
                ElementsAre(testing::AllOf(StartsWith("my.yaml:2:3: "), HasSubstr("UTF-8"))))
        << testing::PrintToString(bytes);
  EXPECT_EQ(good(kData + "run: {dir: \"Übung/日本/😀\"}\n").run.dir, "Übung/日本/😀");
}

TEST(RefusedYaml, TextIn16Bits) {
  EXPECT_THAT(mistakes("\xff\xfe" + "d\0a\0t\0a\0"s), ElementsAre(StartsWith("my.yaml:1:1: ")));
}

}  // namespace
}  // namespace stoker::config::test
