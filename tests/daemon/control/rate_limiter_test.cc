#include "daemon/control/rate_limiter.h"

#include <gtest/gtest.h>

namespace stoker::control {
namespace {

using namespace std::chrono_literals;

int take_all(RateLimiter& rates, uid_t uid) {
  int taken = 0;
  while (taken < 1000 && rates.try_acquire(uid)) ++taken;
  return taken;
}

TEST(RateLimiterTest, AllowsBurstThenConfiguredRatePerSecond) {
  ManualClock clock;
  RateLimiter rates(clock, 4);
  EXPECT_EQ(take_all(rates, 1), 4);
  clock.advance(500ms);
  EXPECT_EQ(take_all(rates, 1), 2);
  clock.advance(1h);
  EXPECT_EQ(take_all(rates, 1), 4) << "a long silence saves up no more than one burst";
}

TEST(RateLimiterTest, LimitsEachUserSeparately) {
  ManualClock clock;
  RateLimiter rates(clock, 2);
  EXPECT_EQ(take_all(rates, 1), 2);
  EXPECT_EQ(take_all(rates, 2), 2);
}

TEST(RateLimiterTest, GrantsNoExtraRequestsAfterEvictingUsers) {
  ManualClock clock;
  RateLimiter rates(clock, 2);
  for (uid_t uid = 0; uid < 600; ++uid) EXPECT_EQ(take_all(rates, uid), 2);
  EXPECT_EQ(take_all(rates, 0), 0);
  clock.advance(1s);
  EXPECT_EQ(take_all(rates, 5000), 2);  // the other users' buckets are deleted
  EXPECT_EQ(take_all(rates, 0), 2);
}

}  // namespace
}  // namespace stoker::control
