#include "daemon/feeder/hang_watch.h"

#include <gtest/gtest.h>

namespace stoker::feeder {
namespace {

using namespace std::chrono_literals;

// A producer, looked at once a second.
class HangWatchTest : public ::testing::Test {
 protected:
  bool look_after(std::chrono::seconds time, ring::ProducerProgress progress) {
    now_ += time;
    return watch_.hangs({.now = now_, .cpu_time = cpu_time_, .progress = progress});
  }
  // Looks often enough; true when it is found to hang at last.
  bool found_to_hang(ring::ProducerProgress progress) {
    bool hangs = false;
    for (int i = 0; i < HangWatch::kLooksInARow && !hangs; ++i) hangs = look_after(0s, progress);
    return hangs;
  }

  HangWatch watch_{10s};
  std::chrono::nanoseconds now_ = 1h;
  std::chrono::nanoseconds cpu_time_ = 5s;
};

TEST_F(HangWatchTest, OneThatHoldsATicketAndFinishesNothingHangs) {
  EXPECT_FALSE(look_after(0s, {.samples = 7, .claims = 1}));
  EXPECT_FALSE(look_after(9s, {.samples = 7, .claims = 1}));
  EXPECT_FALSE(found_to_hang({.samples = 7, .claims = 1})) << "9 s are no hang";
  now_ += 1s;
  EXPECT_TRUE(found_to_hang({.samples = 7, .claims = 1}));
  EXPECT_EQ(watch_.still_for(), 10s);
}

TEST_F(HangWatchTest, ASlowOneDoesNot) {
  for (uint64_t samples = 0; samples < 100; ++samples)
    EXPECT_FALSE(look_after(9s, {.samples = samples, .claims = 1}));
}

TEST_F(HangWatchTest, OneThatHasNothingToDoDoesNot) {
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(look_after(60s, {.samples = 3}));
}

TEST_F(HangWatchTest, TimeWithNothingToDoDoesNotCount) {
  EXPECT_FALSE(look_after(0s, {}));
  EXPECT_FALSE(look_after(60s, {}));
  EXPECT_FALSE(found_to_hang({.claims = 1}));
}

TEST_F(HangWatchTest, OneThatDoesNotEvenClaimHangs) {
  EXPECT_FALSE(look_after(0s, {.unclaimed = 4}));
  now_ += 10s;
  EXPECT_TRUE(found_to_hang({.unclaimed = 4}));
}

TEST_F(HangWatchTest, AMachineThatWasAsleepIsGivenAMoment) {
  EXPECT_FALSE(look_after(0s, {.samples = 7, .claims = 1}));
  EXPECT_FALSE(look_after(3600s, {.samples = 7, .claims = 1}));
  EXPECT_FALSE(look_after(0s, {.samples = 7, .claims = 1}));
  EXPECT_FALSE(look_after(0s, {.samples = 8, .claims = 1})) << "it works again";
  EXPECT_FALSE(found_to_hang({.samples = 8, .claims = 1}));
}

TEST_F(HangWatchTest, WithoutALimitNothingHangs) {
  watch_ = HangWatch(0s);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(look_after(3600s, {.samples = 7, .claims = 1}));
}

TEST_F(HangWatchTest, ProcessorTimeTellsADecoderThatDoesNotEndFromOneThatWaits) {
  EXPECT_FALSE(look_after(0s, {.samples = 7, .claims = 1}));
  now_ += 10s;
  EXPECT_TRUE(found_to_hang({.samples = 7, .claims = 1}));
  EXPECT_FALSE(watch_.computes());
  cpu_time_ += 9s;
  EXPECT_TRUE(look_after(0s, {.samples = 7, .claims = 1}));
  EXPECT_TRUE(watch_.computes());
}

}  // namespace
}  // namespace stoker::feeder
