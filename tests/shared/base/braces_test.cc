#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/glob.h"

namespace stoker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> datasets(const std::string& pattern) {
  std::vector<std::string> out;
  EXPECT_TRUE(expand_braces(pattern, Ranges::kAsSets, 256, out)) << pattern;
  return out;
}
std::vector<std::string> names(const std::string& pattern) {
  auto named = PathGlob::names_in_ranges(pattern);
  EXPECT_TRUE(named.ok());
  return named.ok() ? *named : std::vector<std::string>();
}

TEST(BraceExpansionTest, ExpandsNestedAlternatives) {
  EXPECT_THAT(datasets("a{b,c{d,e}}f"), ElementsAre("abf", "acdf", "acef"));
  EXPECT_THAT(datasets("{a,b}{c,d}"), ElementsAre("ac", "ad", "bc", "bd"));
  EXPECT_THAT(datasets("a{b"), ElementsAre("a{b"));
}

TEST(BraceExpansionTest, ExpandsRangeToFewCharacterClasses) {
  EXPECT_THAT(datasets("{000..146}"), ElementsAre("0[0-9][0-9]", "1[0-3][0-9]", "14[0-6]"));
  EXPECT_THAT(datasets("x-{7..12}.tar"), ElementsAre("x-[7-9].tar", "x-1[0-2].tar"));
  EXPECT_THAT(datasets("{a..c}"), ElementsAre("[a-c]"));
  EXPECT_THAT(datasets("{5..5}"), ElementsAre("5"));
  EXPECT_LE(datasets("{000001..999998}").size(), 20u);
}

TEST(BraceExpansionTest, MatchesExactlyNumbersInRange) {
  for (const auto& [low, high] : std::vector<std::pair<int, int>>{
           {0, 0}, {0, 9}, {3, 217}, {99, 101}, {120, 129}, {1, 1000}, {450, 449}}) {
    for (const bool padded : {false, true}) {
      const auto text = [padded](int number) {
        const std::string digits = std::to_string(number);
        return padded ? std::string(5 - digits.size(), '0') + digits : digits;
      };
      const PathGlob glob = *PathGlob::parse("{" + text(low) + ".." + text(high) + "}");
      for (int number = 0; number < 1200; ++number) {
        const bool is_in = number >= std::min(low, high) && number <= std::max(low, high);
        ASSERT_EQ(glob.matches(text(number)), is_in) << low << ' ' << high << ' ' << number;
      }
      EXPECT_EQ(names("{" + text(low) + ".." + text(high) + "}").size(),
                static_cast<size_t>(std::abs(high - low)) + 1);
    }
  }
}

TEST(BraceExpansionTest, ListsNamesInRangeLikeShell) {
  EXPECT_THAT(names("./a{08..10}.tar"), ElementsAre("a08.tar", "a09.tar", "a10.tar"));
  EXPECT_THAT(names("{x,y}{1..2}"), ElementsAre("x1", "x2", "y1", "y2"));
  EXPECT_THAT(names("{a,b}"), IsEmpty());
  EXPECT_THAT(names("*{1..2}"), IsEmpty());
  EXPECT_THAT(names("{1..x}"), IsEmpty());
  EXPECT_EQ(PathGlob::names_in_ranges("{1..99999999999}").status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(PathGlob::names_in_ranges("{1..999}{1..999}{1..999}").status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stoker
