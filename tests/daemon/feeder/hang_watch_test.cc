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
  EXPECT_FALSE(look_after(0s, {.claims = 1, .samples = 7}));
  EXPECT_FALSE(look_after(9s, {.claims = 1, .samples = 7}));
  EXPECT_FALSE(found_to_hang({.claims = 1, .samples = 7})) << "9 s are no hang";
  now_ += 1s;
  EXPECT_TRUE(found_to_hang({.claims = 1, .samples = 7}));
  EXPECT_EQ(watch_.still_for(), 10s);
}

TEST_F(HangWatchTest, ASlowOneDoesNot) {
  for (uint64_t samples = 0; samples < 100; ++samples)
    EXPECT_FALSE(look_after(9s, {.claims = 1, .samples = samples}));
}

TEST_F(HangWatchTest, OneThatHasNothingToDoDoesNot) {
  for (uint64_t looks = 0; looks < 100; ++looks)
    EXPECT_FALSE(look_after(60s, {.samples = 3, .looks = looks}));
}

TEST_F(HangWatchTest, TimeWithNothingToDoDoesNotCount) {
  EXPECT_FALSE(look_after(0s, {.looks = 1}));
  EXPECT_FALSE(look_after(60s, {.looks = 600}));
  EXPECT_FALSE(found_to_hang({.claims = 1, .looks = 600}));
}

TEST_F(HangWatchTest, OneThatDoesNotEvenLookForATicketHangs) {
  EXPECT_FALSE(look_after(0s, {.looks = 4}));
  now_ += 10s;
  EXPECT_TRUE(found_to_hang({.looks = 4}));
}

TEST_F(HangWatchTest, ThreadsThatLookDoNotHideTheOneThatHangsWithATicket) {
  bool hangs = false;
  for (uint64_t looks = 0; looks < 200 && !hangs; ++looks)
    hangs = look_after(1s, {.claims = 1, .samples = 7, .looks = looks});
  EXPECT_TRUE(hangs);
}

TEST_F(HangWatchTest, AMachineThatWasAsleepIsGivenAMoment) {
  EXPECT_FALSE(look_after(0s, {.claims = 1, .samples = 7}));
  EXPECT_FALSE(look_after(3600s, {.claims = 1, .samples = 7}));
  EXPECT_FALSE(look_after(0s, {.claims = 1, .samples = 7}));
  EXPECT_FALSE(look_after(0s, {.claims = 1, .samples = 8})) << "it works again";
  EXPECT_FALSE(found_to_hang({.claims = 1, .samples = 8}));
}

TEST_F(HangWatchTest, WithoutALimitNothingHangs) {
  watch_ = HangWatch(0s);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(look_after(3600s, {.claims = 1, .samples = 7}));
}

TEST_F(HangWatchTest, ProcessorTimeTellsADecoderThatDoesNotEndFromOneThatWaits) {
  EXPECT_FALSE(look_after(0s, {.claims = 1, .samples = 7}));
  now_ += 10s;
  EXPECT_TRUE(found_to_hang({.claims = 1, .samples = 7}));
  EXPECT_FALSE(watch_.computes());
  cpu_time_ += 9s;
  EXPECT_TRUE(look_after(0s, {.claims = 1, .samples = 7}));
  EXPECT_TRUE(watch_.computes());
}

}  // namespace
}  // namespace stoker::feeder
