#include "daemon/feeder/feed_activity.h"

#include <gtest/gtest.h>

namespace stoker::feeder {
namespace {

using namespace std::chrono_literals;

TEST(FeedActivity, IsTheThreadsThatWereAtItOnAverageSinceTheLastLook) {
  FeedActivity activity;
  activity.look(10s, {.read_ns = 5'000'000'000, .wait_slot_ns = 7});
  EXPECT_EQ(activity.busy().reading, 0);
  activity.look(12s, {.read_ns = 9'000'000'000,
                      .decode_ns = 2'500'000'000,
                      .transform_ns = 500'000'000,
                      .wait_slot_ns = 1'000'000'007});
  EXPECT_DOUBLE_EQ(activity.busy().reading, 0.5);
  EXPECT_DOUBLE_EQ(activity.busy().decoding, 1.25);
  EXPECT_DOUBLE_EQ(activity.busy().transforming, 0.25);
  EXPECT_DOUBLE_EQ(activity.busy().waiting, 0.5);
}

TEST(FeedActivity, KeepsWhatItSaidForASecond) {
  FeedActivity activity;
  activity.look(0s, {});
  activity.look(1s, {.read_ns = 1'000'000'000});
  activity.look(1500ms, {.read_ns = 1'000'000'000});
  EXPECT_DOUBLE_EQ(activity.busy().reading, 1);
  activity.look(2s, {.read_ns = 1'000'000'000});
  EXPECT_DOUBLE_EQ(activity.busy().reading, 0);
}

}  // namespace
}  // namespace stoker::feeder
