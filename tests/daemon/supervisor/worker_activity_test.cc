#include "daemon/supervisor/worker_activity.h"

#include <gtest/gtest.h>

namespace stoker::supervisor {
namespace {

using namespace std::chrono_literals;

TEST(WorkerActivityTest, ReportsAverageBusyThreadsSinceLastPoll) {
  WorkerActivity activity;
  activity.update(10s, {.read_ns = 5'000'000'000, .wait_slot_ns = 7});
  EXPECT_EQ(activity.busy().reading, 0);
  activity.update(12s, {.read_ns = 9'000'000'000,
                        .decode_ns = 2'500'000'000,
                        .transform_ns = 500'000'000,
                        .wait_slot_ns = 1'000'000'007});
  EXPECT_DOUBLE_EQ(activity.busy().reading, 0.5);
  EXPECT_DOUBLE_EQ(activity.busy().decoding, 1.25);
  EXPECT_DOUBLE_EQ(activity.busy().transforming, 0.25);
  EXPECT_DOUBLE_EQ(activity.busy().waiting, 0.5);
}

TEST(WorkerActivityTest, LimitsUpdatesToOncePerSecond) {
  WorkerActivity activity;
  activity.update(0s, {});
  activity.update(1s, {.read_ns = 1'000'000'000});
  activity.update(1500ms, {.read_ns = 1'000'000'000});
  EXPECT_DOUBLE_EQ(activity.busy().reading, 1);
  activity.update(2s, {.read_ns = 1'000'000'000});
  EXPECT_DOUBLE_EQ(activity.busy().reading, 0);
}

}  // namespace
}  // namespace stoker::supervisor
