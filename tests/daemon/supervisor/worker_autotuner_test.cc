#include "daemon/supervisor/worker_autotuner.h"

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

using namespace std::chrono_literals;

class WorkerAutotunerTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSlots = 8;

  // `seconds` seconds with `ready` filled slots, ten observations each.
  void pass(int seconds, uint64_t ready, bool trains = true) {
    for (int i = 0; i < 10 * seconds; ++i) pass_tenth(ready, trains);
  }
  void pass_tenth(uint64_t ready, bool trains = true) {
    now_ += 100ms;
    consumed_ += trains ? 1 : 0;
    tuner_.update({.now = now_, .ready = ready, .slots = kSlots, .consumed = consumed_});
  }

  WorkerAutotuner tuner_{1, 6};
  std::chrono::nanoseconds now_{0};
  uint64_t consumed_ = 0;
};

TEST_F(WorkerAutotunerTest, AddsWorkerPerSecondUpToMaximumOnEmptyRing) {
  EXPECT_EQ(tuner_.wanted(), 2u);
  pass(2, 0);
  EXPECT_GE(tuner_.wanted(), 3u);
  EXPECT_LE(tuner_.wanted(), 4u);
  pass(20, 1);
  EXPECT_EQ(tuner_.wanted(), 6u);
}

TEST_F(WorkerAutotunerTest, RemovesWorkersToMinimumAfterTenSecondsOnFullRing) {
  pass(9, kSlots);
  EXPECT_EQ(tuner_.wanted(), 2u);
  pass(3, kSlots);
  EXPECT_EQ(tuner_.wanted(), 1u);
  pass(100, kSlots);
  EXPECT_EQ(tuner_.wanted(), 1u);
}

TEST_F(WorkerAutotunerTest, ChangesNothingBetweenThresholds) {
  pass(100, 4);
  EXPECT_EQ(tuner_.wanted(), 2u);
  pass(8, kSlots);
  pass(2, 5);  // interrupts the consecutive periods
  pass(8, kSlots);
  EXPECT_EQ(tuner_.wanted(), 2u);
}

TEST_F(WorkerAutotunerTest, ChangesNothingWithoutConsumption) {
  pass(100, 0, false);  // the first batches take long
  pass(100, kSlots, false);
  EXPECT_EQ(tuner_.wanted(), 2u);
}

TEST_F(WorkerAutotunerTest, DelaysRemovalAfterWorkerWasNeededAgain) {
  const auto looks_until = [this](uint32_t wanted, uint64_t ready) {
    int looks = 0;
    for (; looks < 100000 && tuner_.wanted() != wanted; ++looks) pass_tenth(ready);
    return looks;
  };
  int last = 0;
  for (int round = 0; round < 4; ++round) {
    const int looks = looks_until(1, kSlots);
    EXPECT_GT(looks, last * 3 / 2) << round;
    last = looks;
    EXPECT_LE(looks_until(2, 0), 25);
  }
}

TEST(WorkerAutotunerLimitsTest, UsesMinimumOfOneWorkerPerProcess) {
  EXPECT_EQ(WorkerAutotuner(3, 8).wanted(), 3u);
  EXPECT_EQ(WorkerAutotuner(1, 1).wanted(), 1u);
}

}  // namespace
}  // namespace stoker::supervisor
