#include "shared/data/order/sample_weights_file.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/folder_fixture.h"
#include "tests/support/numpy_files.h"

namespace stoker::data::order {
namespace {

using ::testing::HasSubstr;
using Weights = std::vector<double>;

template <typename Number>
std::string npy(const std::vector<Number>& numbers, const std::string& type,
                const std::string& shape, int version = 1) {
  return test::npy(type, shape, test::bytes_of(numbers), static_cast<char>(version));
}

std::string rejection(std::string_view bytes) {
  const auto weights = parse_weights(bytes, "w");
  EXPECT_EQ(weights.status().code(), StatusCode::kCorrupt) << bytes;
  return weights.status().message();
}

TEST(SampleWeightsFileTest, ParsesNumbersSeparatedBySpaceOrComma) {
  EXPECT_EQ(*parse_weights("1\n2.5\n0\n1e-3\n", "w"), (Weights{1, 2.5, 0, 1e-3}));
  EXPECT_EQ(*parse_weights("  1 2,3\r\n4", "w"), (Weights{1, 2, 3, 4}));
}

TEST(SampleWeightsFileTest, ReportsInvalidNumberWithLine) {
  EXPECT_THAT(rejection("1\n2\nthree\n"), HasSubstr("w: line 3: not a number"));
  EXPECT_THAT(rejection("1\n2x\n"), HasSubstr("line 2"));
  EXPECT_THAT(rejection("1e999\n"), HasSubstr("line 1"));
  EXPECT_THAT(rejection(""), HasSubstr("has 0 numbers"));
}

TEST(SampleWeightsFileTest, ReportsInvalidWeightWithSample) {
  EXPECT_THAT(rejection("1 -1"), HasSubstr("the weight of sample 1 is not a number from 0: -1"));
  EXPECT_THAT(rejection("1 2 nan"), HasSubstr("sample 2"));
  EXPECT_THAT(rejection("inf"), HasSubstr("sample 0"));
  EXPECT_THAT(rejection("0 0 0"), HasSubstr("all weights are 0"));
}

TEST(SampleWeightsFileTest, ReadsNumpyFiles) {
  const Weights weights{0.5, 0, 3};
  const std::vector<float> narrow{0.5f, 0, 3};
  for (const int version : {1, 2, 3}) {
    EXPECT_EQ(*parse_weights(npy(weights, "<f8", "(3,)", version), "w"), weights);
    EXPECT_EQ(*parse_weights(npy(narrow, "<f4", "(3,)", version), "w"), weights);
  }
}

TEST(SampleWeightsFileTest, RejectsUnsupportedNumpyArrays) {
  const Weights weights{1, 2, 3, 4};
  EXPECT_THAT(rejection(npy(weights, ">f8", "(4,)")), HasSubstr("'>f8'"));
  EXPECT_THAT(rejection(npy(weights, "<i8", "(4,)")), HasSubstr("float64 ('<f8') are read"));
  EXPECT_THAT(rejection(npy(weights, "<f8", "(2, 2)")), HasSubstr("one dimension"));
  EXPECT_THAT(rejection(npy(weights, "<f8", "()")), HasSubstr("one dimension"));
  EXPECT_THAT(rejection(npy(weights, "<f8", "(5,)")), HasSubstr("declares 5 numbers"));
  EXPECT_THAT(rejection(npy(weights, "<f8", "(99999999999999999999,)")),
              HasSubstr("one dimension"));
}

TEST(SampleWeightsFileTest, ReportsErrorOrValidWeightsOnCorruptArray) {
  const std::string whole = npy(Weights{1, 2, 3}, "<f8", "(3,)");
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(parse_weights(whole.substr(0, length), "w").ok()) << length;
  size_t num_valid = 0, num_rejected = 0;
  for (size_t at = 0; at < whole.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      const auto weights = parse_weights(flipped, "w");
      ++(weights.ok() ? num_valid : num_rejected);
      if (!weights.ok()) continue;
      EXPECT_EQ(weights->size(), 3u) << "byte " << at;
      for (const double weight : *weights) EXPECT_TRUE(std::isfinite(weight) && weight >= 0);
    }
  // A flipped bit of the mantissa of a number is valid, one of the magic number is not.
  EXPECT_GE(num_valid, 3u * 52);
  EXPECT_GE(num_rejected, 6u * 8);
}

TEST(WeightsSnapshotTest, RoundTripsBitForBit) {
  const Weights weights{0.1, 0, 1e300, 5e-324};
  EXPECT_EQ(*decode_weights_snapshot(encode_weights_snapshot(weights), "k"), weights);
}

TEST(WeightsSnapshotTest, DetectsTruncationAndFlippedBits) {
  const std::string whole = encode_weights_snapshot({1, 2, 3});
  ASSERT_GE(whole.size(), 3 * sizeof(double));
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_EQ(decode_weights_snapshot(whole.substr(0, length), "k").status().code(),
              StatusCode::kCorrupt);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(decode_weights_snapshot(flipped, "k").ok()) << bit;
  }
}

class ReadWeightsFileTest : public testing::FolderFixture {};

TEST_F(ReadWeightsFileTest, RequiresOneWeightPerSample) {
  write("w.txt", "1\n2\n3\n");
  EXPECT_EQ(*read_weights_file(path("w.txt"), 3), (Weights{1, 2, 3}));
  const auto other = read_weights_file(path("w.txt"), 4);
  EXPECT_EQ(other.status().code(), StatusCode::kMismatch);
  EXPECT_THAT(other.status().message(), HasSubstr("has 3 numbers for 4 samples"));
  EXPECT_EQ(read_weights_file(path("none"), 4).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace stoker::data::order
