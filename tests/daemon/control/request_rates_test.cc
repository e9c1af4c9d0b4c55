#include "daemon/control/request_rates.h"

#include <gtest/gtest.h>

namespace stoker::control_server {
namespace {

using namespace std::chrono_literals;

int take_all(RequestRates& rates, uid_t uid) {
  int taken = 0;
  while (taken < 1000 && rates.take(uid)) ++taken;
  return taken;
}

TEST(RequestRates, ABurstThenSoManyASecond) {
  ManualClock clock;
  RequestRates rates(clock, 4);
  EXPECT_EQ(take_all(rates, 1), 4);
  clock.advance(500ms);
  EXPECT_EQ(take_all(rates, 1), 2);
  clock.advance(1h);
  EXPECT_EQ(take_all(rates, 1), 4) << "a long silence saves up no more than one burst";
}

TEST(RequestRates, OneUserTakesNothingFromAnother) {
  ManualClock clock;
  RequestRates rates(clock, 2);
  EXPECT_EQ(take_all(rates, 1), 2);
  EXPECT_EQ(take_all(rates, 2), 2);
}

TEST(RequestRates, ForgettingUsersGivesNobodyMore) {
  ManualClock clock;
  RequestRates rates(clock, 2);
  for (uid_t uid = 0; uid < 600; ++uid) EXPECT_EQ(take_all(rates, uid), 2);
  EXPECT_EQ(take_all(rates, 0), 0);
  clock.advance(1s);
  EXPECT_EQ(take_all(rates, 5000), 2);  // the others are forgotten meanwhile
  EXPECT_EQ(take_all(rates, 0), 2);
}

}  // namespace
}  // namespace stoker::control_server
