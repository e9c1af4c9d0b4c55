#include "shared/base/json_parser.h"

#include <bit>
#include <cmath>
#include <random>
#include <string>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "tests/support/test_seed.h"

namespace stoker {
namespace {

namespace json = boost::json;

double read_back(const std::string& text) {
  boost::system::error_code error;
  const json::value value = parse_json(text, error);
  EXPECT_FALSE(error) << text << ": " << error.message();
  return value.to_number<double>();
}

TEST(JsonParserTest, RoundTripsEveryDouble) {
  std::mt19937_64 random(test::test_seed() + 5);
  for (int i = 0; i < 200000; ++i) {
    const auto number = std::bit_cast<double>(random());
    if (!std::isfinite(number)) continue;
    ASSERT_EQ(read_back(json::serialize(json::value(number))), number);
  }
  std::uniform_real_distribution<double> usual(-10, 10);
  for (int i = 0; i < 200000; ++i) {
    const double number = usual(random);
    ASSERT_EQ(read_back(json::serialize(json::value(number))), number);
  }
}

// A loss that an evaluation returned. Boost.JSON's own parser read it as 0.9674570043571292.
TEST(JsonParserTest, ParsesRecordedLossExactly) {
  EXPECT_EQ(read_back("9.674570043571293E-1"), 0.9674570043571293);
  EXPECT_EQ(read_back("0.9674570043571293"), 0.9674570043571293);
}

TEST(JsonParserTest, ParsesAllValueTypes) {
  const std::string text =
      R"({"a":[1,-2,18446744073709551615,1.5,true,null],"b":{"c":"d\n\u00e9","e":{}},"f":[]})";
  boost::system::error_code error;
  EXPECT_EQ(parse_json(text, error), json::parse(text));
  EXPECT_FALSE(error);
}

TEST(JsonParserTest, RejectsInvalidJsonLikeBoostJson) {
  for (const char* const text : {"", "{", "{} x", "[1,]", "nul", "[1e]", "{\"a\" 1}", "\"\\x\""}) {
    boost::system::error_code expected, error;
    static_cast<void>(json::parse(text, expected));
    EXPECT_TRUE(parse_json(text, error).is_null());
    EXPECT_EQ(error, expected) << text << ": " << error.message();
  }
  boost::system::error_code error;
  parse_json("[[[1]]]", error, 3);
  EXPECT_FALSE(error);
  parse_json("[[[[1]]]]", error, 3);
  EXPECT_EQ(error, json::error::too_deep);
}

TEST(JsonParserTest, LimitsNumberOfValues) {
  std::string text = "[0";
  for (int i = 0; i < 8'000'000; ++i) text += ",0";
  boost::system::error_code error;
  EXPECT_TRUE(parse_json(text + "]", error).is_null());
  EXPECT_EQ(error.message(), "more than 8000000 values");
}

TEST(JsonParserTest, ParsesOutOfRangeNumbersLikeBoostJson) {
  boost::system::error_code expected, error;
  const json::value usual = json::parse("[1e400,1e-400]", expected);
  EXPECT_EQ(parse_json("[1e400,1e-400]", error), usual);
  EXPECT_EQ(error, expected);
}

}  // namespace
}  // namespace stoker
