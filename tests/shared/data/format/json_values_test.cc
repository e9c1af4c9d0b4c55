#include "shared/data/format/json_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::data::format {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JsonValuesTest : public ::testing::Test {
 protected:
  // Reads the values of "a" and "b.c".
  Status read(const std::string& line) { return values_.read(line, found_); }
  std::string error(const std::string& line) {
    const Status status = read(line);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << line;
    return status.message();
  }
  std::string text(size_t value) {
    return std::string(record::to_string_view(std::get<record::FieldBytes>(found_[value])));
  }
  std::vector<int64_t> ints(size_t value) {
    const auto ints = std::get<record::FieldInts>(found_[value]);
    return {ints.begin(), ints.end()};
  }
  std::vector<float> floats(size_t value) {
    const auto floats = std::get<record::FieldFloats>(found_[value]);
    return {floats.begin(), floats.end()};
  }

  JsonValues values_{{"a", "b.c"}};
  std::vector<record::FieldValue> found_{2};
};

TEST_F(JsonValuesTest, ReadsStringsNumbersAndBooleans) {
  ASSERT_TRUE(read(R"({"a": "x\n\u00fc\"", "z": {"a": 5}, "b": {"c": -7, "a": 1}})").ok());
  EXPECT_EQ(text(0), "x\n\xc3\xbc\"");
  EXPECT_THAT(ints(1), ElementsAre(-7));
  ASSERT_TRUE(read(R"({"a": true, "b": {"c": 2.5}})").ok());
  EXPECT_THAT(ints(0), ElementsAre(1));
  EXPECT_THAT(floats(1), ElementsAre(2.5));
  ASSERT_TRUE(read(R"({"a": 18446744073709551615})").ok());
  EXPECT_THAT(floats(0), ElementsAre(18446744073709551616.0f));
  ASSERT_TRUE(read(R"({"a": ""})").ok());
  EXPECT_EQ(text(0), "");
}

TEST_F(JsonValuesTest, FlattensArraysOfNumbers) {
  ASSERT_TRUE(read(R"({"a": [1, [2, 3], []], "b": {"c": [1, 0.5, 2]}})").ok());
  EXPECT_THAT(ints(0), ElementsAre(1, 2, 3));
  EXPECT_THAT(floats(1), ElementsAre(1, 0.5, 2));
}

TEST_F(JsonValuesTest, RequiresDeclaredNumberCountInNestedLists) {
  JsonValues values({"a", "b"}, 2);
  std::vector<record::FieldValue> found(2);
  EXPECT_TRUE(values.read("{\"a\": [[1, 2], [[3], [4]]], \"b\": [[1], [2, 3]]}", found).ok())
      << "only of the first value";
  EXPECT_THAT(std::get<record::FieldInts>(found[0]), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(values.read("{\"a\": [1, 2, 3], \"b\": 1}", found).ok()) << "no lists within it";
  for (const char* const line : {"{\"a\": [[1, 2], [3]]}", "{\"a\": [[]]}", "{\"a\": [1, [2, 3]]}",
                                 "{\"a\": [[1, 2, 3, 4]]}"}) {
    const Status status = values.read(line, found);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << line;
    EXPECT_NE(status.message().find("'a' must be lists of 2 numbers each, got one of"),
              std::string::npos)
        << status.message();
  }
}

TEST_F(JsonValuesTest, TreatsNullAndAbsentFieldsAsMissing) {
  ASSERT_TRUE(read(R"({"a": null, "b": {}, "c": 5})").ok());
  EXPECT_TRUE(record::is_missing(found_[0]));
  EXPECT_TRUE(record::is_missing(found_[1]));
  ASSERT_TRUE(read(R"({"x": [{"a": 1, "b": {"c": 2}}, "a", null]})").ok());
  EXPECT_TRUE(record::is_missing(found_[0]));
  EXPECT_TRUE(record::is_missing(found_[1]));
}

TEST_F(JsonValuesTest, FindsDottedAndLongKeysAndLongStrings) {
  const std::string filler(100'000, 'k');
  ASSERT_TRUE(read("{\"" + filler.substr(0, 60'000) + "\": \"" + filler + "\", \"b.c\": \"" +
                   filler + "\", \"\\u0061\": 3}")
                  .ok());
  EXPECT_EQ(text(1), filler);
  EXPECT_THAT(ints(0), ElementsAre(3));
}

TEST_F(JsonValuesTest, ClearsValuesOfPreviousLine) {
  ASSERT_TRUE(read(R"({"a": [1, 2], "b": {"c": "text"}})").ok());
  EXPECT_FALSE(read(R"({"a": [5, )").ok());
  ASSERT_TRUE(read(R"({"a": 9})").ok());
  EXPECT_THAT(ints(0), ElementsAre(9));
  EXPECT_TRUE(record::is_missing(found_[1]));
}

TEST_F(JsonValuesTest, RejectsUnsupportedValueWithFieldName) {
  EXPECT_THAT(error(R"({"a": {}})"), HasSubstr("'a' is an object"));
  EXPECT_THAT(error(R"({"a": [1, "x"]})"), HasSubstr("'a' contains a text"));
  EXPECT_THAT(error(R"({"a": [null]})"), HasSubstr("'a' contains null"));
  EXPECT_THAT(error(R"({"b": {"c": [{}]}})"), HasSubstr("'b.c' contains an object"));
  EXPECT_THAT(error(R"({"a": 1, "a": 2})"), HasSubstr("'a' is a duplicate key"));
  EXPECT_THAT(error(R"({"b": {"c": 1}, "b.c": 2})"), HasSubstr("'b.c' is a duplicate key"));
}

TEST_F(JsonValuesTest, RejectsInvalidJsonWithByteOffset) {
  for (const char* const line :
       {"", "5", "[1]", "\"a\"", "null", "{\"a\": 1", "{\"a\": 1}}", "{'a': 1}", "{\"a\": 1,}",
        "{\"a\": nan}", "{\"a\": \"\xff\"}", "{} {}"})
    EXPECT_THAT(error(line), HasSubstr(" at byte ")) << line;
  EXPECT_THAT(error("{\"a\": ?}"), HasSubstr("at byte 7"));
}

TEST_F(JsonValuesTest, RejectsDeepNesting) {
  const auto nested = [](size_t depth) {
    return "{\"z\": " + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_TRUE(read(nested(30)).ok());
  EXPECT_FALSE(read(nested(40)).ok());
  EXPECT_FALSE(read("{\"a\": " + std::string(1'000'000, '[')).ok());
}

}  // namespace
}  // namespace stoker::data::format
