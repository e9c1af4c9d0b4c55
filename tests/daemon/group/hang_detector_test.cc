#include "daemon/group/hang_detector.h"

#include <gtest/gtest.h>

namespace stoker::group {
namespace {

using namespace std::chrono_literals;

class HangDetectorTest : public testing::Test {
 protected:
  static constexpr std::chrono::seconds kLimit = 120s + HangDetector::kGrace;
  HangDetector detector_{120s, 600s};
};

TEST_F(HangDetectorTest, FindsThatExchangesEnded) {
  EXPECT_FALSE(detector_.check(0s, 1));
  EXPECT_FALSE(detector_.check(kLimit, 1));
  EXPECT_EQ(detector_.check(kLimit + 1s, 1), kLimit + 1s);
}

TEST_F(HangDetectorTest, StartsAgainAtEachExchange) {
  EXPECT_FALSE(detector_.check(0s, 1));
  EXPECT_FALSE(detector_.check(kLimit, 2));
  EXPECT_FALSE(detector_.check(2 * kLimit, 2));
  EXPECT_TRUE(detector_.check(2 * kLimit + 1s, 2));
}

TEST_F(HangDetectorTest, WaitsLongerForFirstExchange) {
  EXPECT_FALSE(detector_.check(0s, 0));
  EXPECT_FALSE(detector_.check(kLimit + 600s, 0));
  EXPECT_TRUE(detector_.check(kLimit + 601s, 0));
}

TEST_F(HangDetectorTest, ExpectsNothingBeforeAndAfterTraining) {
  EXPECT_FALSE(detector_.check(0s, std::nullopt));
  EXPECT_FALSE(detector_.check(1000s, std::nullopt));
  EXPECT_FALSE(detector_.check(1001s, 5));
  EXPECT_FALSE(detector_.check(1002s, std::nullopt));
  EXPECT_FALSE(detector_.check(5000s, std::nullopt));
}

// A group whose rank saves a large checkpoint in its last step, or is in the next segment.
TEST_F(HangDetectorTest, DoesNotCountTimeWithoutExpectation) {
  EXPECT_FALSE(detector_.check(0s, 5));
  EXPECT_FALSE(detector_.check(100s, std::nullopt));
  EXPECT_FALSE(detector_.check(200s, 5));
}

}  // namespace
}  // namespace stoker::group
