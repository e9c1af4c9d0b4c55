#include <string>

#include <gtest/gtest.h>

#include "shared/base/glob.h"

namespace stoker {
namespace {

bool matches(const std::string& pattern, const std::string& path) {
  const auto glob = PathGlob::parse(pattern);
  EXPECT_TRUE(glob.ok()) << pattern;
  return glob.ok() && glob->matches(path);
}

bool may_match_below(const std::string& pattern, const std::string& folder) {
  const auto glob = PathGlob::parse(pattern);
  EXPECT_TRUE(glob.ok()) << pattern;
  return glob.ok() && glob->may_match_below(folder);
}

TEST(PathGlobTest, MatchesStarAndQuestionMarkWithinName) {
  EXPECT_TRUE(matches("*.h", "vector.h"));
  EXPECT_FALSE(matches("*.h", "bits/vector.h"));
  EXPECT_TRUE(matches("a?c", "abc"));
  EXPECT_FALSE(matches("a?c", "ac"));
  EXPECT_TRUE(matches("*a*b*c", "xxaxxbxxbc"));
  EXPECT_FALSE(matches("*a*b*c", "xxaxxcxx"));
  EXPECT_TRUE(matches("*", "a"));
}

TEST(PathGlobTest, MatchesDoubleStarAcrossFolders) {
  EXPECT_TRUE(matches("**/*.h", "vector.h"));
  EXPECT_TRUE(matches("**/*.h", "a/b/c/vector.h"));
  EXPECT_TRUE(matches("**", "a/b"));
  EXPECT_TRUE(matches("a/**/b", "a/b"));
  EXPECT_TRUE(matches("a/**/b", "a/x/y/b"));
  EXPECT_FALSE(matches("a/**/b", "c/a/b"));
  EXPECT_FALSE(matches("**/*.h", "a/vector.hh"));
}

TEST(PathGlobTest, MatchesCharacterClassesAndAlternatives) {
  EXPECT_TRUE(matches("[a-c]x", "bx"));
  EXPECT_FALSE(matches("[!a-c]x", "bx"));
  EXPECT_TRUE(matches("[!a-c]x", "dx"));
  EXPECT_TRUE(matches("[]]", "]"));
  EXPECT_TRUE(matches("[ab", "[ab"));  // never closed: literal
  EXPECT_TRUE(matches("*.{h,cc}", "a.cc"));
  EXPECT_FALSE(matches("*.{h,cc}", "a.c"));
  EXPECT_TRUE(matches("{a,b{c,d}}/*", "bd/x"));
  EXPECT_TRUE(matches("a{b", "a{b"));
}

TEST(PathGlobTest, MatchesHiddenNamesOnlyExplicitly) {
  EXPECT_FALSE(matches("**/*", ".git/config"));
  EXPECT_FALSE(matches("**/*", "a/.DS_Store"));
  EXPECT_FALSE(matches("?git", ".git"));
  EXPECT_TRUE(matches("**/.*", "a/.DS_Store"));
  EXPECT_TRUE(matches(".git/*", ".git/config"));
}

TEST(PathGlobTest, SkipsFoldersWithoutPossibleMatch) {
  EXPECT_TRUE(may_match_below("**/*.h", "a/b"));
  EXPECT_FALSE(may_match_below("**/*.h", ".git"));
  EXPECT_FALSE(may_match_below("*.h", "a"));
  EXPECT_TRUE(may_match_below("a/*.h", "a"));
  EXPECT_FALSE(may_match_below("a/*.h", "b"));
  EXPECT_FALSE(may_match_below("a/*.h", "a/b"));
  EXPECT_TRUE(may_match_below("a/**", "a/b/c"));
  EXPECT_TRUE(may_match_below("n01*/**", "n01440764"));
}

TEST(PathGlobTest, RejectsInvalidPatterns) {
  for (const std::string pattern : {"", "/etc/*", "./", "{a,}"})
    EXPECT_EQ(PathGlob::parse(pattern).status().code(), StatusCode::kInvalidArgument) << pattern;
  EXPECT_FALSE(PathGlob::parse("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}").ok());  // 512
}

// Patterns that make a naive matcher take exponential time.
TEST(PathGlobTest, MatchesHostilePatternsInBoundedTime) {
  std::string stars, folders, deep;
  for (int i = 0; i < 100; ++i) stars += "a*", folders += "**/a/", deep += "a/";
  EXPECT_FALSE(matches(stars + "b", std::string(2000, 'a')));
  EXPECT_FALSE(matches(folders + "b", deep + deep + "c"));
}

}  // namespace
}  // namespace stoker
