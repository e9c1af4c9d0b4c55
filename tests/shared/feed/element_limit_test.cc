#include "shared/feed/element_limit.h"

#include <atomic>
#include <stop_token>
#include <thread>

#include <gtest/gtest.h>

namespace stoker::feed {
namespace {

// Calls acquire() in a separate thread.
class Acquiring {
 public:
  Acquiring(ElementLimit& limit, uint64_t bytes)
      : thread_([this, &limit, bytes](const std::stop_token& stop) {
          status_ = limit.acquire(bytes, stop, blocked);
        }) {}
  void wait_until_blocked() const {
    while (!blocked) std::this_thread::yield();
  }
  Status end() {
    thread_.join();
    return status_;
  }
  void stop() { thread_.request_stop(); }

  std::atomic<bool> blocked{false};

 private:
  Status status_;
  std::jthread thread_;  // last member, because it uses the others
};

TEST(ElementLimit, BlocksUntilBytesAreReleased) {
  ElementLimit limit(100, 1);
  std::atomic<bool> blocked{false};
  ASSERT_TRUE(limit.acquire(60, {}, blocked).ok());
  EXPECT_FALSE(blocked);
  Acquiring second(limit, 60);
  second.wait_until_blocked();
  limit.release_bytes(20);
  EXPECT_FALSE(second.blocked);  // without the thread
  EXPECT_TRUE(second.end().ok());
  EXPECT_EQ(limit.held_bytes(), 100u);
  EXPECT_EQ(limit.elements(), 2u);
}

TEST(ElementLimit, PassesElementsThatBatchNeedsAboveLimit) {
  ElementLimit limit(10, 2);
  std::atomic<bool> blocked{false};
  ASSERT_TRUE(limit.acquire(50, {}, blocked).ok());
  ASSERT_TRUE(limit.acquire(50, {}, blocked).ok());
  Acquiring third(limit, 1);
  third.wait_until_blocked();
  limit.release(50);
  EXPECT_TRUE(third.end().ok());
  EXPECT_EQ(limit.held_bytes(), 51u);
}

TEST(ElementLimit, ServesWaitersInOrder) {
  ElementLimit limit(100, 1);
  limit.add(100);
  Acquiring large(limit, 100);
  large.wait_until_blocked();
  Acquiring small(limit, 1);
  small.wait_until_blocked();
  limit.release_bytes(50);
  EXPECT_TRUE(large.blocked);
  EXPECT_TRUE(small.blocked);
  limit.release(50);
  EXPECT_TRUE(large.end().ok());
  EXPECT_TRUE(small.blocked);
  limit.release(100);
  EXPECT_TRUE(small.end().ok());
}

TEST(ElementLimit, StopEndsWaitAndServesNextWaiter) {
  ElementLimit limit(100, 1);
  limit.add(50);
  Acquiring large(limit, 100);
  large.wait_until_blocked();
  Acquiring small(limit, 50);
  small.wait_until_blocked();
  large.stop();
  EXPECT_EQ(large.end().code(), StatusCode::kCancelled);
  EXPECT_FALSE(large.blocked);
  EXPECT_TRUE(small.end().ok());
  EXPECT_EQ(limit.held_bytes(), 100u);
}

}  // namespace
}  // namespace stoker::feed
