#include "shared/base/deadline.h"

#include <latch>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

namespace stoker {
namespace {

TEST(SleepUntilTest, EndsAtDeadline) {
  const std::stop_source stop;
  EXPECT_TRUE(sleep_until(stop.get_token(), Deadline::min()));
  const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
  EXPECT_TRUE(sleep_until(stop.get_token(), deadline));
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
}

TEST(SleepUntilTest, EndsWhenStopped) {
  std::stop_source stop;
  std::jthread sleeper(
      [token = stop.get_token()] { EXPECT_FALSE(sleep_until(token, kNoDeadline)); });
  stop.request_stop();
  sleeper.join();
  EXPECT_FALSE(sleep_until(stop.get_token(), kNoDeadline));
  EXPECT_FALSE(sleep_until(stop.get_token(), Deadline::min()));
}

TEST(WriteWithinTest, NamesFileAndStorageAfterTimeout) {
  const auto released = std::make_shared<std::latch>(1);
  const Status written =
      write_within(std::chrono::milliseconds(3), "run/stacks.txt", [released]() -> Status {
        released->wait();
        return {};
      });
  EXPECT_EQ(written.code(), StatusCode::kTimedOut);
  EXPECT_EQ(written.message(),
            "run/stacks.txt: was not written within 3 ms, because its storage does not respond; "
            "check the disk or the mount");
  released->count_down();
}

}  // namespace
}  // namespace stoker
