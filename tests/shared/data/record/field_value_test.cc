#include "shared/data/record/field_value.h"

#include <array>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::data::record {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

FieldValue bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(FieldValueTest, AppendsNumbersOfSeveralValues) {
  const std::array<int64_t, 2> ints{-1, 1 << 20};
  const std::array<float, 1> floats{0.5f};
  std::vector<float> out(4);
  size_t filled = 0;
  ASSERT_TRUE(append_numbers(FieldInts(ints), out, filled).ok());
  ASSERT_TRUE(append_numbers(FieldFloats(floats), out, filled).ok());
  ASSERT_TRUE(append_numbers(bytes(" -2.5e1\n"), out, filled).ok());
  EXPECT_EQ(filled, 4u);
  EXPECT_THAT(out, ElementsAre(-1, 1 << 20, 0.5f, -25));
}

TEST(FieldValueTest, RejectsMoreNumbersThanCapacity) {
  const std::array<int64_t, 3> ints{1, 2, 3};
  std::vector<float> out(4, 7);
  size_t filled = 2;
  const Status status = append_numbers(FieldInts(ints), out, filled);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_EQ(status.message(), "has 3 numbers, more than the 2 that are needed");
  EXPECT_THAT(out, ElementsAre(7, 7, 7, 7));
}

TEST(FieldValueTest, RejectsInvalidNumbers) {
  std::vector<float> out(1);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    size_t filled = 0;
    EXPECT_EQ(append_numbers(FieldFloats(&bad, 1), out, filled).code(), StatusCode::kCorrupt);
  }
  for (const std::string_view bad : {"", "x", "1 2", "0x10", "1.5.", "nan", "inf", "1e99"}) {
    size_t filled = 0;
    EXPECT_EQ(append_numbers(bytes(bad), out, filled).code(), StatusCode::kCorrupt) << bad;
  }
  size_t filled = 0;
  EXPECT_EQ(append_numbers(FieldValue(), out, filled).message(), "is not there");
}

TEST(FieldValueTest, RequiresExactByteCount) {
  std::array<std::byte, 3> out{};
  EXPECT_TRUE(copy_bytes(bytes("abc"), out).ok());
  EXPECT_EQ(out[2], std::byte{'c'});
  EXPECT_EQ(copy_bytes(bytes("ab"), out).message(), "is 2 bytes, but 3 bytes are needed");
  EXPECT_EQ(copy_bytes(FieldFloats(), out).message(), "is 0 numbers, but 3 bytes are needed");
}

TEST(FieldValueTest, ParsesIntegersFromNumbersOrText) {
  const int64_t seven = 7, negative = -7;
  EXPECT_EQ(*whole_number(FieldInts(&seven, 1)), 7u);
  EXPECT_EQ(*whole_number(bytes("007\r\n")), 7u);
  EXPECT_THAT(whole_number(FieldInts(&negative, 1)).status().message(), HasSubstr("below 0"));
  EXPECT_THAT(whole_number(FieldInts()).status().message(), HasSubstr("0 whole numbers"));
  for (const std::string_view bad : {"-7", "7.0", "", "dog", "18446744073709551616"})
    EXPECT_EQ(whole_number(bytes(bad)).status().code(), StatusCode::kCorrupt) << bad;
}

TEST(FieldValueTest, ReplacesControlCharactersInMessages) {
  const Status status = whole_number(bytes("a\x1b[2J" + std::string(99, 'x'))).status();
  EXPECT_EQ(status.message(), "is 'a?[2J" + std::string(27, 'x') + "…', not a whole number from 0");
}

}  // namespace
}  // namespace stoker::data::record
