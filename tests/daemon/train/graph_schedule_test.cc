#include "daemon/train/graph_schedule.h"

#include <gtest/gtest.h>

namespace stoker::train {
namespace {

using Way = GraphSchedule::Way;

struct NoGraph final : cuda::Graph {
  void replay() override {}
};

// Does as an engine does; the way that was taken.
Way take(GraphSchedule& schedule, const GraphSchedule::Part& part) {
  const Way way = schedule.next(part);
  if (way == Way::kCapture) schedule.captured(part, std::make_unique<NoGraph>());
  return way;
}

TEST(GraphSchedule, WarmsUpThenCapturesEachBufferOnceThenReplays) {
  GraphSchedule schedule(true);
  std::vector<Way> ways;
  for (size_t step = 0; step < 8; ++step)
    ways.push_back(take(schedule, {.shape = "a", .buffer = step % 2}));
  using enum Way;
  EXPECT_EQ(ways,
            (std::vector{kPlain, kPlain, kPlain, kCapture, kCapture, kReplay, kReplay, kReplay}));
}

TEST(GraphSchedule, PartsOfAStepAreGraphsOfTheirOwnAndWarmUpCountsSteps) {
  GraphSchedule schedule(true);
  const GraphSchedule::Part first{"a", 0, true, false}, last{"a", 1, false, true};
  for (int step = 0; step < GraphSchedule::kWarmUpSteps; ++step) {
    EXPECT_EQ(take(schedule, first), Way::kPlain);
    EXPECT_EQ(take(schedule, last), Way::kPlain);
  }
  EXPECT_EQ(take(schedule, first), Way::kCapture);
  EXPECT_EQ(take(schedule, last), Way::kCapture);
  EXPECT_EQ(take(schedule, first), Way::kReplay);
  EXPECT_EQ(take(schedule, last), Way::kReplay);
}

TEST(GraphSchedule, ANewShapeIsCapturedAnewAndTheOldOneStays) {
  GraphSchedule schedule(true);
  for (const char* const shape : {"a", "b"}) {
    for (int step = 0; step < GraphSchedule::kWarmUpSteps; ++step)
      EXPECT_EQ(take(schedule, {.shape = shape}), Way::kPlain);
    EXPECT_EQ(take(schedule, {.shape = shape}), Way::kCapture);
  }
  EXPECT_EQ(take(schedule, {.shape = "a"}), Way::kReplay);
  EXPECT_EQ(take(schedule, {.shape = "b"}), Way::kReplay);
}

TEST(GraphSchedule, ShapesBeyondTheBoundAreDonePlainlyForGood) {
  GraphSchedule schedule(true);
  for (size_t shape = 0; shape < GraphSchedule::kMostShapes; ++shape)
    EXPECT_EQ(take(schedule, {.shape = std::to_string(shape)}), Way::kPlain);
  for (int step = 0; step < 10; ++step)
    EXPECT_EQ(take(schedule, {.shape = "one more"}), Way::kPlain);
  for (int step = 1; step < GraphSchedule::kWarmUpSteps; ++step) take(schedule, {.shape = "0"});
  EXPECT_EQ(take(schedule, {.shape = "0"}), Way::kCapture);
}

TEST(GraphSchedule, NothingIsCapturedAfterItGaveUpNorWhereItIsOff) {
  GraphSchedule schedule(true);
  for (int step = 0; step < GraphSchedule::kWarmUpSteps + 1; ++step) take(schedule, {.shape = "a"});
  EXPECT_EQ(schedule.graphs(), 1u);
  schedule.give_up();
  EXPECT_EQ(schedule.graphs(), 0u);
  GraphSchedule off(false);
  for (int step = 0; step < 10; ++step) {
    EXPECT_EQ(take(schedule, {.shape = "a"}), Way::kPlain);
    EXPECT_EQ(take(off, {.shape = "a"}), Way::kPlain);
  }
}

}  // namespace
}  // namespace stoker::train
