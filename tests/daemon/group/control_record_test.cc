#include "daemon/group/control_record.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::group {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// What the ordered sum of a group does to the numbers.
ControlNumbers sum(const ControlNumbers& left, const ControlNumbers& right) {
  ControlNumbers sums(left.size());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = left[i] + right[i];
  return sums;
}

TEST(ControlRecordTest, CountsRequestsAndKeepsCommandOfChief) {
  const ControlRecord chief{
      .step = 7, .save = 1, .snapshot = 1, .refresh = 1, .command = SharedCommand::kChangeSetting};
  const ControlRecord other{
      .step = 7, .stop = 1, .preempted = 1, .save = 1, .sample_errors = 1u << 31, .can_capture = 1};
  const auto sums =
      sum(to_numbers(chief, {}, 0, 3),
          sum(to_numbers(other, {}, 1, 3),
              to_numbers({.step = 7, .can_capture = 1, .gave_up_capture = 1}, {}, 2, 3)));
  const auto parsed = parse_sum(sums, 7, 3);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(*parsed, (ControlRecord{.step = 7,
                                    .stop = 1,
                                    .preempted = 1,
                                    .save = 2,
                                    .snapshot = 1,
                                    .refresh = 1,
                                    .sample_errors = 1u << 31,
                                    .can_capture = 2,
                                    .gave_up_capture = 1,
                                    .command = SharedCommand::kChangeSetting,
                                    .ranks = std::vector<RankReport>(3)}));
}

TEST(ControlRecordTest, KeepsReportOfEachRank) {
  const RankReport first{
      .compute_ms = 12.3, .data_wait_ms = 0.1, .quarantined = 4, .optimizer_bytes = 1u << 31};
  RankReport second{.compute_ms = 45.6, .checksum = (uint64_t{1} << 33) - 1};
  for (size_t i = 0; i < second.use.size(); ++i) second.use[i] = 0.1 + static_cast<double>(i);
  const auto parsed =
      parse_sum(sum(to_numbers({}, first, 0, 2), to_numbers({}, second, 1, 2)), 0, 2);
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(parsed->ranks, ElementsAre(first, second));
}

TEST(ControlRecordTest, ReportsRanksAtDifferentSteps) {
  const auto parsed =
      parse_sum(sum(to_numbers({.step = 7}, {}, 0, 2), to_numbers({.step = 8}, {}, 1, 2)), 7, 2);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().code(), StatusCode::kInternal);
}

TEST(ControlRecordTest, RejectsUnknownCommand) {
  ControlNumbers numbers = to_numbers({.step = 1}, {}, 0, 1);
  numbers[9] = 200;
  EXPECT_FALSE(parse_sum(numbers, 1, 1).ok());
}

TEST(ControlRecordTest, RejectsNumbersThatAreNoCounts) {
  const ControlNumbers valid = to_numbers({.step = 1}, {}, 0, 1);
  ASSERT_TRUE(parse_sum(valid, 1, 1).ok());
  for (const size_t at : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14}) {
    for (const double invalid :
         {-1.0, std::nan(""), 1e300, -std::numeric_limits<double>::infinity(),
          std::numeric_limits<double>::infinity()}) {
      ControlNumbers numbers = valid;
      numbers[at] = invalid;
      EXPECT_EQ(parse_sum(numbers, 1, 1).status().code(), StatusCode::kInternal)
          << at << ": " << invalid;
    }
  }
}

TEST(ControlRecordTest, RejectsNumbersOfAnotherWorldSize) {
  EXPECT_FALSE(parse_sum(to_numbers({}, {}, 0, 2), 0, 1).ok());
}

TEST(QuarantineTextTest, KeepsSamples) {
  const std::vector<uint64_t> samples{31, 0, 99};
  for (const uint64_t count : {2, 3}) {
    const auto parsed = parse_samples(format_samples(samples), count, 100);
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    EXPECT_EQ(*parsed, samples);
  }
  EXPECT_TRUE(parse_samples("", 0, 100).ok());
}

TEST(QuarantineTextTest, RejectsOtherText) {
  for (const char* const text : {"", "31 ", "31 100 ", "31 -1 ", "31 7", "31 x ", "31  7 ",
                                 "31 7 y", "31 99999999999999999999 "})
    EXPECT_EQ(parse_samples(text, 2, 100).status().code(), StatusCode::kCorrupt) << text;
}

std::string name_of(int rank) { return "rank " + std::to_string(rank); }

Status compare(const std::vector<uint64_t>& checksums) {
  std::vector<RankReport> ranks;
  for (const uint64_t checksum : checksums) ranks.push_back({.checksum = checksum});
  return compare_checksums(ranks, 40, name_of);
}

TEST(CompareChecksumsTest, AcceptsEqualOnesAndNone) {
  EXPECT_TRUE(compare({5, 5, 5}).ok());
  EXPECT_TRUE(compare({0, 0}).ok());
}

TEST(CompareChecksumsTest, NamesRankThatDiffersFromMost) {
  const Status different = compare({5, 5, 6, 5});
  EXPECT_EQ(different.code(), StatusCode::kInternal);
  EXPECT_THAT(different.message(), HasSubstr("differ after step 40: wrong on rank 2; test memory"));
  EXPECT_THAT(different.message(), Not(HasSubstr("heckpoints")));
}

TEST(CompareChecksumsTest, WarnsOfCheckpointsOfChiefThatDiffers) {
  EXPECT_THAT(compare({6, 5, 5}).message(), HasSubstr("wrong on rank 0"));
  EXPECT_THAT(compare({6, 5, 5}).message(), HasSubstr("heckpoints since"));
}

TEST(CompareChecksumsTest, NamesAllWithoutMajority) {
  EXPECT_THAT(compare({6, 5}).message(), HasSubstr("as many as others: rank 0, rank 1; test"));
  EXPECT_THAT(compare({6, 5}).message(), HasSubstr("heckpoints since"));
}

}  // namespace
}  // namespace stoker::group
