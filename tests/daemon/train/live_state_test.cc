#include "daemon/train/live_state.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::train {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(LiveStateTest, RoundTripsBitForBit) {
  const LiveState live{.settings = {{"optimizer.lr", "0.0001", "0.0003"}, {"log.level", "\"", ""}},
                       .lr_scale = 0.1 + 0.2,
                       .skipped_steps = std::numeric_limits<uint64_t>::max(),
                       .consecutive_nonfinite = 2,
                       .rollbacks = 3,
                       .loss_trend = {.sum = 1.0 / 3, .weight = 0.271, .maybe_base = 1e-300},
                       .plateau = {.maybe_best = 0.1 + 0.2,
                                   .num_bad = 3,
                                   .cooldown_left = 2,
                                   .loss_sum = 1.0 / 3,
                                   .loss_steps = 17},
                       .quarantined = {31, 7, std::numeric_limits<uint64_t>::max()}};
  const auto read = parse_live_state(to_json(live));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, live);
}

TEST(LiveStateTest, UsesDefaultsForMissingFieldsAndIgnoresUnknownFields) {
  const auto read = parse_live_state("{}");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, LiveState());
  EXPECT_THAT(read->quarantined, IsEmpty());
  EXPECT_TRUE(parse_live_state(R"({"lr_scale":2,"of_a_later_release":[1]})").ok());
}

TEST(LiveStateTest, RejectsInvalidState) {
  for (const char* const text :
       {"", "[]", R"({"lr_scale":0})", R"({"lr_scale":-1})", R"({"lr_scale":1e999})",
        R"({"lr_scale":"1"})", R"({"skipped_steps":-1})", R"({"rollbacks":0.5})",
        R"({"loss_trend":7})", R"({"loss_trend":{"sum":1}})", R"({"plateau":[]})",
        R"({"plateau":{"num_bad":1}})", R"({"quarantined":{}})", R"({"quarantined":[1,-1]})",
        R"({"settings":{}})", R"({"settings":[7]})",
        R"({"settings":[{"key":"a","value":1,"configured":"b"}]})"}) {
    const auto read = parse_live_state(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), StatusCode::kCorrupt) << text;
    EXPECT_THAT(read.status().message(), HasSubstr("live: ")) << text;
    EXPECT_EQ(read.status().message().find('\n'), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace stoker::train
