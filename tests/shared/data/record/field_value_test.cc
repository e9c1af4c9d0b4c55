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
  EXPECT_EQ(status.message(), "has 3 numbers, more than the required 2");
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
  EXPECT_EQ(append_numbers(FieldValue(), out, filled).message(), "is missing");
}

TEST(FieldValueTest, RequiresExactByteCount) {
  std::array<std::byte, 3> out{};
  EXPECT_TRUE(copy_bytes(bytes("abc"), out).ok());
  EXPECT_EQ(out[2], std::byte{'c'});
  EXPECT_EQ(copy_bytes(bytes("ab"), out).message(), "must be 3 bytes, got 2 bytes");
  EXPECT_EQ(copy_bytes(FieldFloats(), out).message(), "must be 3 bytes, got 0 numbers");
}

TEST(FieldValueTest, ParsesIntegersFromNumbersOrText) {
  const int64_t seven = 7, negative = -7;
  EXPECT_EQ(*non_negative_integer(FieldInts(&seven, 1)), 7u);
  EXPECT_EQ(*non_negative_integer(bytes("007\r\n")), 7u);
  EXPECT_THAT(non_negative_integer(FieldInts(&negative, 1)).status().message(),
              HasSubstr("must be at least 0, got -7"));
  EXPECT_THAT(non_negative_integer(FieldInts()).status().message(), HasSubstr("0 integers"));
  for (const std::string_view bad : {"-7", "7.0", "", "dog", "18446744073709551616"})
    EXPECT_EQ(non_negative_integer(bytes(bad)).status().code(), StatusCode::kCorrupt) << bad;
}

template <typename Number>
FieldArray array_of(std::span<const Number> numbers, char kind) {
  return {.bytes = std::as_bytes(numbers), .type = {.kind = kind, .bytes = sizeof(Number)}};
}

TEST(FieldValueTest, ConvertsArraysOfAnyTypeToFloats) {
  const std::array<int16_t, 2> ints{-3, 4};
  const std::array<double, 1> doubles{0.1};
  const std::array<uint8_t, 1> bools{1};
  std::vector<float> out(4);
  size_t filled = 0;
  ASSERT_TRUE(append_numbers(array_of<int16_t>(ints, 'i'), out, filled).ok());
  ASSERT_TRUE(append_numbers(array_of<double>(doubles, 'f'), out, filled).ok());
  ASSERT_TRUE(append_numbers(array_of<uint8_t>(bools, 'b'), out, filled).ok());
  EXPECT_EQ(filled, 4u);
  EXPECT_THAT(out, ElementsAre(-3, 4, 0.1f, 1));
}

TEST(FieldValueTest, RejectsArraysThatAreTooLongOrNotFinite) {
  const std::array<double, 2> numbers{1, std::numeric_limits<double>::infinity()};
  const FieldArray array = array_of<double>(numbers, 'f');
  std::vector<float> out(2);
  size_t filled = 1;
  EXPECT_EQ(append_numbers(array, out, filled).message(),
            "has 2 numbers, more than the required 1");
  filled = 0;
  EXPECT_EQ(append_numbers(array, out, filled).message(), "must be finite, got infinity");
}

TEST(FieldValueTest, RoundsDoublesAboveMaximumOfFloatAsIeee754) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const std::array<double, 4> numbers{kMax + 0x1p102, kMax + 0x1.fffp102, -kMax - 0x1.fffp102,
                                      kMax + 0x1p103};
  std::array<float, 4> out{};
  array_to_floats(array_of<double>(numbers, 'f'), std::as_writable_bytes(std::span(out)));
  EXPECT_THAT(out, ElementsAre(kMax, kMax, -kMax, std::numeric_limits<float>::infinity()));
}

TEST(FieldValueTest, TurnsInterleavedChannelsIntoPlanes) {
  const std::array<uint8_t, 6> pixels{1, 2, 3, 4, 5, 6};
  FieldArray image = array_of<uint8_t>(pixels, 'u');
  image.interleaved_channels = 3;
  std::array<std::byte, 6> out{};
  ASSERT_TRUE(copy_bytes(image, out).ok());
  EXPECT_THAT(out, ElementsAre(std::byte{1}, std::byte{4}, std::byte{2}, std::byte{5}, std::byte{3},
                               std::byte{6}));
  EXPECT_EQ(copy_bytes(image, std::span(out).first(5)).message(), "must be 5 bytes, got 6 bytes");
}

TEST(FieldValueTest, ReadsWholeNumbersOfArraysAndLists) {
  const std::array<uint64_t, 3> numbers{7, std::numeric_limits<uint64_t>::max(), 9};
  const std::array<int64_t, 3> same{7, -1, 9};
  const FieldValue array = array_of<uint64_t>(numbers, 'u');
  std::array<int64_t, 2> buffer{};
  for (const FieldValue& value : {array, FieldValue(FieldInts(same))}) {
    EXPECT_EQ(*integer_count(value), 3u);
    EXPECT_THAT(integers(value, 0, buffer), ElementsAre(7, -1));
    EXPECT_THAT(integers(value, 2, buffer), ElementsAre(9));
    std::array<int64_t, 2> copy{};
    copy_integers(first_numbers(value, 2), copy);
    EXPECT_THAT(copy, ElementsAre(7, -1));
  }
  EXPECT_EQ(*non_negative_integer(first_numbers(array, 1)), 7u);
  EXPECT_EQ(integer_count(FieldFloats()).status().message(),
            "must be a list of integers, got 0 numbers");
}

TEST(FieldValueTest, ReplacesControlCharactersInMessages) {
  const Status status = non_negative_integer(bytes("a\x1b[2J" + std::string(99, 'x'))).status();
  EXPECT_EQ(status.message(),
            "must be an integer of at least 0, got 'a?[2J" + std::string(35, 'x') + "…'");
}

}  // namespace
}  // namespace stoker::data::record
