#include "shared/config/nearest_word.h"

#include <gtest/gtest.h>

namespace stoker::config {
namespace {

TEST(NearestWord, CountsOneSlipAsOne) {
  EXPECT_EQ(edit_distance("steps", "steps"), 0u);
  EXPECT_EQ(edit_distance("stps", "steps"), 1u);
  EXPECT_EQ(edit_distance("stepss", "steps"), 1u);
  EXPECT_EQ(edit_distance("stebs", "steps"), 1u);
  EXPECT_EQ(edit_distance("setps", "steps"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
}

TEST(NearestWord, IsTheFirstOfThoseThatAreNear) {
  EXPECT_EQ(nearest_word("batc", {"steps", "batch", "bats"}), "batch");
  EXPECT_EQ(nearest_word("tp", {"to", "lr"}), "to");
}

TEST(NearestWord, IsEmptyWhereNoneIsNear) {
  EXPECT_EQ(nearest_word("learning_rate", {"lr", "kind", "eps"}), "");
  EXPECT_EQ(nearest_word("x", {}), "");
  EXPECT_EQ(nearest_word(std::string(100000, 'a'), {"a"}), "");
}

}  // namespace
}  // namespace stoker::config
