#include "shared/feed/element_limit.h"

#include <stop_token>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/eventually.h"

namespace stoker::feed {
namespace {

// Calls acquire() in a separate thread.
class Acquiring {
 public:
  Acquiring(ElementLimit& limit, uint64_t bytes)
      : thread_([this, &limit, bytes](const std::stop_token& stop) {
          status_ = limit.acquire(bytes, reader_, stop);
        }) {}
  bool is_blocked() const { return reader_.is_blocked(); }
  void wait_until_blocked() const {
    EXPECT_TRUE(test::eventually([this] { return is_blocked(); }));
  }
  Status end() {
    thread_.join();
    return status_;
  }
  void stop() { thread_.request_stop(); }

 private:
  ElementLimit::Reader reader_;
  Status status_;
  std::jthread thread_;  // last member, because it uses the others
};

TEST(ElementLimit, BlocksUntilBytesAreReleased) {
  ElementLimit limit(100, 1);
  ElementLimit::Reader first;
  ASSERT_TRUE(limit.acquire(60, first, {}).ok());
  EXPECT_FALSE(first.is_blocked());
  Acquiring second(limit, 60);
  second.wait_until_blocked();
  limit.release_bytes(20);
  EXPECT_FALSE(second.is_blocked());  // without the thread
  EXPECT_TRUE(second.end().ok());
  EXPECT_EQ(limit.held_bytes(), 100u);
  EXPECT_EQ(limit.elements(), 2u);
}

TEST(ElementLimit, PassesElementsThatBatchNeedsAboveLimit) {
  ElementLimit limit(10, 2);
  ElementLimit::Reader reader;
  ASSERT_TRUE(limit.acquire(50, reader, {}).ok());
  ASSERT_TRUE(limit.acquire(50, reader, {}).ok());
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
  EXPECT_TRUE(large.is_blocked());
  EXPECT_TRUE(small.is_blocked());
  limit.release(50);
  EXPECT_TRUE(large.end().ok());
  EXPECT_TRUE(small.is_blocked());
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
  EXPECT_FALSE(large.is_blocked());
  EXPECT_TRUE(small.end().ok());
  EXPECT_EQ(limit.held_bytes(), 100u);
}

TEST(ElementLimit, CountsWindowsOfOtherReaders) {
  ElementLimit limit(100, 1);
  ElementLimit::Reader large, own;
  limit.set_window(large, 80);
  limit.set_window(own, 1000);
  limit.set_window(own, 0);
  ASSERT_TRUE(limit.acquire(30, large, {}).ok());
  EXPECT_EQ(limit.held_bytes(), 30u);
  Acquiring other(limit, 20);
  other.wait_until_blocked();
  limit.set_window(large, 50);
  EXPECT_TRUE(other.end().ok());
  limit.set_window(large, 0);
}

// The queue is told that its readers wait; what it does can release memory.
TEST(ElementLimit, CallsReaderThatBlocks) {
  ElementLimit limit(100, 1);
  int calls = 0;
  ElementLimit::Reader reader([&] {
    ++calls;
    EXPECT_TRUE(reader.is_blocked());
    limit.release(60);
  });
  ASSERT_TRUE(limit.acquire(60, reader, {}).ok());
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(limit.acquire(60, reader, {}).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(reader.is_blocked());
}

}  // namespace
}  // namespace stoker::feed
