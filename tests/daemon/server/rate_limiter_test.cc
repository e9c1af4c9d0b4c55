#include "daemon/server/rate_limiter.h"

#include <gtest/gtest.h>

namespace stoker::server {
namespace {

using namespace std::chrono_literals;

int acquire_all(RateLimiter& rates, uid_t uid) {
  int acquired = 0;
  while (acquired < 1000 && rates.try_acquire(uid)) ++acquired;
  return acquired;
}

TEST(RateLimiterTest, AllowsBurstThenConfiguredRatePerSecond) {
  ManualClock clock;
  RateLimiter rates(clock, 4);
  EXPECT_EQ(acquire_all(rates, 1), 4);
  clock.advance(500ms);
  EXPECT_EQ(acquire_all(rates, 1), 2);
  clock.advance(1h);
  EXPECT_EQ(acquire_all(rates, 1), 4) << "tokens do not accumulate beyond one burst";
}

TEST(RateLimiterTest, AllowsBurstLargerThanRate) {
  ManualClock clock;
  RateLimiter rates(clock, 1.0 / 60, 5);
  EXPECT_EQ(acquire_all(rates, 1), 5);
  clock.advance(59s);
  EXPECT_EQ(acquire_all(rates, 1), 0);
  clock.advance(2s);
  EXPECT_EQ(acquire_all(rates, 1), 1);
}

TEST(RateLimiterTest, LimitsEachUserSeparately) {
  ManualClock clock;
  RateLimiter rates(clock, 2);
  EXPECT_EQ(acquire_all(rates, 1), 2);
  EXPECT_EQ(acquire_all(rates, 2), 2);
}

TEST(RateLimiterTest, GrantsNoExtraRequestsAfterEvictingUsers) {
  ManualClock clock;
  RateLimiter rates(clock, 2);
  for (uid_t uid = 0; uid < 600; ++uid) EXPECT_EQ(acquire_all(rates, uid), 2);
  EXPECT_EQ(acquire_all(rates, 0), 0);
  clock.advance(1s);
  EXPECT_EQ(acquire_all(rates, 5000), 2);  // the other users' buckets are deleted
  EXPECT_EQ(acquire_all(rates, 0), 2);
}

}  // namespace
}  // namespace stoker::server
