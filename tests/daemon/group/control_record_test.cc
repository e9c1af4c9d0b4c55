#include "daemon/group/control_record.h"

#include <gtest/gtest.h>

namespace stoker::group {
namespace {

// What the ordered sum of a group does to the numbers.
ControlNumbers sum(const ControlNumbers& left, const ControlNumbers& right) {
  ControlNumbers sums{};
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = left[i] + right[i];
  return sums;
}

TEST(ControlRecordTest, CountsRequestsAndKeepsCommandOfChief) {
  const ControlRecord chief{.step = 7,
                            .save = 1,
                            .command = SharedCommand::kSetLearningRate,
                            .argument = 3.0000000000000004e-5};
  const ControlRecord other{.step = 7, .stop = 1, .save = 1, .sample_errors = 1u << 31};
  const auto sums = sum(to_numbers(chief), sum(to_numbers(other), to_numbers({.step = 7})));
  const auto parsed = parse_sum(sums, 7, 3);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(*parsed, (ControlRecord{.step = 7,
                                    .stop = 1,
                                    .save = 2,
                                    .sample_errors = 1u << 31,
                                    .command = SharedCommand::kSetLearningRate,
                                    .argument = 3.0000000000000004e-5}));
}

TEST(ControlRecordTest, HasNoRequestByDefault) {
  const auto parsed = parse_sum(to_numbers({}), 0, 4);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, ControlRecord{});
}

TEST(ControlRecordTest, ReportsRanksAtDifferentSteps) {
  const auto parsed = parse_sum(sum(to_numbers({.step = 7}), to_numbers({.step = 8})), 7, 2);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().code(), StatusCode::kInternal);
}

TEST(ControlRecordTest, RejectsUnknownCommand) {
  ControlNumbers numbers = to_numbers({.step = 1});
  numbers[4] = 200;
  EXPECT_FALSE(parse_sum(numbers, 1, 1).ok());
}

}  // namespace
}  // namespace stoker::group
