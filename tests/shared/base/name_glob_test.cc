#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/glob.h"

namespace stoker {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

TEST(NameGlobTest, MatchesDocumentedPatterns) {
  for (const auto& [pattern, name] :
       {std::pair("fc.weight", "fc.weight"), std::pair("*", ""), std::pair("*", "a.b.c"),
        std::pair("blocks.0.*", "blocks.0.qkv.weight"), std::pair("*.bias", "a.b.bias"),
        std::pair("bn?.*", "bn1.weight"), std::pair("layer[12].*", "layer2.0.conv1.weight"),
        std::pair("layer[0-4]", "layer3"), std::pair("[!f]c", "xc"), std::pair("[^f]c", "xc"),
        std::pair("[]a]", "]"), std::pair("a[b", "a[b"), std::pair("*a*b*", "xxaxxbxx")})
    EXPECT_TRUE(NameGlob(pattern).matches(name)) << pattern << " " << name;
  for (const auto& [pattern, name] :
       {std::pair("fc.weight", "fc.weights"), std::pair("fc", "fc.weight"), std::pair("", "a"),
        std::pair("blocks.1.*", "blocks.10.x"), std::pair("?", ""), std::pair("?", "ab"),
        std::pair("[ab]", "c"), std::pair("[!ab]", "a"), std::pair("*a*b", "ab.c"),
        std::pair("Fc", "fc")})
    EXPECT_FALSE(NameGlob(pattern).matches(name)) << pattern << " " << name;
}

TEST(NameGlobTest, ReturnsTextMatchedByEachWildcard) {
  EXPECT_THAT(NameGlob("module.*").match_parts("module.fc.weight"),
              Optional(ElementsAre("fc.weight")));
  EXPECT_THAT(NameGlob("h.*.attn.*").match_parts("h.11.attn.c.bias"),
              Optional(ElementsAre("11", "c.bias")));
  EXPECT_THAT(NameGlob("*.*").match_parts("a.b.c"), Optional(ElementsAre("a", "b.c")));
  EXPECT_THAT(NameGlob("**").match_parts("ab"), Optional(ElementsAre("", "ab")));
  EXPECT_THAT(NameGlob("a").match_parts("a"), Optional(ElementsAre()));
}

TEST(NameGlobTest, MatchesManyWildcardsInBoundedTime) {
  std::string stars, name(500, 'a');
  for (int i = 0; i < 100; ++i) stars += "*a";
  EXPECT_FALSE(NameGlob(stars + "b").matches(name));
}

TEST(ExpandWildcardsTest, ReplacesWildcardsByMatchedText) {
  EXPECT_EQ(expand_wildcards("blocks.*.qkv.*", {"3", "bias"}), "blocks.3.qkv.bias");
  EXPECT_EQ(expand_wildcards("*", {"fc.weight"}), "fc.weight");
  EXPECT_EQ(expand_wildcards("tok.weight", {"unused"}), "tok.weight");
  EXPECT_EQ(expand_wildcards("*.*", {"a"}), "a.");
}

}  // namespace
}  // namespace stoker
