#include "daemon/train/graph_schedule.h"

#include <gtest/gtest.h>

namespace stoker::train {
namespace {

using Mode = GraphSchedule::Mode;

struct NoGraph final : cuda::Graph {
  void replay() override {}
};

// Asks for the mode and acts on it as an engine does; returns the mode.
Mode take(GraphSchedule& schedule, const GraphSchedule::Part& part) {
  const Mode way = schedule.next(part);
  if (way == Mode::kCapture) schedule.captured(part, std::make_unique<NoGraph>());
  return way;
}

TEST(GraphScheduleTest, WarmsUpThenCapturesEachBufferOnceThenReplays) {
  GraphSchedule schedule(true);
  std::vector<Mode> ways;
  for (size_t step = 0; step < 8; ++step)
    ways.push_back(take(schedule, {.shape = "a", .buffer = step % 2}));
  using enum Mode;
  EXPECT_EQ(ways,
            (std::vector{kPlain, kPlain, kPlain, kCapture, kCapture, kReplay, kReplay, kReplay}));
}

TEST(GraphScheduleTest, CapturesMicroBatchesSeparatelyAndCountsWarmUpInSteps) {
  GraphSchedule schedule(true);
  const GraphSchedule::Part first{"a", 0, true, false}, last{"a", 1, false, true};
  for (int step = 0; step < GraphSchedule::kWarmUpSteps; ++step) {
    EXPECT_EQ(take(schedule, first), Mode::kPlain);
    EXPECT_EQ(take(schedule, last), Mode::kPlain);
  }
  EXPECT_EQ(take(schedule, first), Mode::kCapture);
  EXPECT_EQ(take(schedule, last), Mode::kCapture);
  EXPECT_EQ(take(schedule, first), Mode::kReplay);
  EXPECT_EQ(take(schedule, last), Mode::kReplay);
}

TEST(GraphScheduleTest, CapturesNewShapeAndRetainsOldGraph) {
  GraphSchedule schedule(true);
  for (const char* const shape : {"a", "b"}) {
    for (int step = 0; step < GraphSchedule::kWarmUpSteps; ++step)
      EXPECT_EQ(take(schedule, {.shape = shape}), Mode::kPlain);
    EXPECT_EQ(take(schedule, {.shape = shape}), Mode::kCapture);
  }
  EXPECT_EQ(take(schedule, {.shape = "a"}), Mode::kReplay);
  EXPECT_EQ(take(schedule, {.shape = "b"}), Mode::kReplay);
}

TEST(GraphScheduleTest, RunsShapesBeyondLimitEagerly) {
  GraphSchedule schedule(true);
  for (size_t shape = 0; shape < GraphSchedule::kMaxShapes; ++shape)
    EXPECT_EQ(take(schedule, {.shape = std::to_string(shape)}), Mode::kPlain);
  for (int step = 0; step < 10; ++step)
    EXPECT_EQ(take(schedule, {.shape = "one more"}), Mode::kPlain);
  for (int step = 1; step < GraphSchedule::kWarmUpSteps; ++step) take(schedule, {.shape = "0"});
  EXPECT_EQ(take(schedule, {.shape = "0"}), Mode::kCapture);
}

TEST(GraphScheduleTest, WarmsUpAgainAfterRestart) {
  GraphSchedule schedule(true);
  for (int step = 0; step < GraphSchedule::kWarmUpSteps + 1; ++step) take(schedule, {.shape = "a"});
  schedule.restart();
  EXPECT_EQ(schedule.graphs(), 0u);
  for (int step = 0; step < GraphSchedule::kWarmUpSteps; ++step)
    EXPECT_EQ(take(schedule, {.shape = "a"}), Mode::kPlain);
  EXPECT_EQ(take(schedule, {.shape = "a"}), Mode::kCapture);
}

TEST(GraphScheduleTest, CapturesInGroupAfterAgreementOnly) {
  GraphSchedule schedule(true, /*awaits_agreement=*/true);
  for (int round = 0; round < 2; ++round) {
    for (int step = 0; step < GraphSchedule::kWarmUpSteps; ++step) {
      EXPECT_FALSE(schedule.is_ready());
      EXPECT_EQ(take(schedule, {.shape = "a"}), Mode::kPlain);
    }
    EXPECT_TRUE(schedule.is_ready());
    EXPECT_EQ(take(schedule, {.shape = "a"}), Mode::kPlain);
    schedule.agree();
    EXPECT_EQ(take(schedule, {.shape = "a"}), Mode::kCapture);
    schedule.restart();
  }
  schedule.agree();
  schedule.give_up();
  EXPECT_FALSE(schedule.is_ready());
  EXPECT_TRUE(schedule.has_given_up());
}

TEST(GraphScheduleTest, CapturesNothingAfterGivingUpOrWhenDisabled) {
  GraphSchedule schedule(true);
  for (int step = 0; step < GraphSchedule::kWarmUpSteps + 1; ++step) take(schedule, {.shape = "a"});
  EXPECT_EQ(schedule.graphs(), 1u);
  schedule.give_up();
  EXPECT_EQ(schedule.graphs(), 0u);
  GraphSchedule off(false);
  for (int step = 0; step < 10; ++step) {
    EXPECT_EQ(take(schedule, {.shape = "a"}), Mode::kPlain);
    EXPECT_EQ(take(off, {.shape = "a"}), Mode::kPlain);
  }
}

}  // namespace
}  // namespace stoker::train
