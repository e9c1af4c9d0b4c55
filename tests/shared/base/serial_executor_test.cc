#include "shared/base/serial_executor.h"

#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/thread_registry.h"
#include "tests/support/eventually.h"

namespace stoker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr seconds kPatience{60};

// Executes numbers. The first one waits until release().
class SerialExecutorTest : public ::testing::Test {
 protected:
  static constexpr size_t kCapacity = 2;

  ~SerialExecutorTest() override { release(); }
  void execute(int number, const std::stop_token& stop) {
    if (number == 0) {
      started_.count_down();
      released_.wait();
      was_stopped_ = stop.stop_requested();
    }
    executed_.push_back(number);
  }
  void post_and_block() {
    EXPECT_EQ(executor_.post(0), PostResult::kPosted);
    started_.wait();
  }
  void release() {
    if (!released_.try_wait()) released_.count_down();
  }

  std::latch started_{1}, released_{1};
  bool was_stopped_ = false;  // the first one
  std::vector<int> executed_;
  SerialExecutor<int> executor_{
      "test", kCapacity,
      [this](const int number, const std::stop_token& stop) { execute(number, stop); }};
};

// What the list of threads shows.
std::string operation_of_thread(const std::string& name) {
  for (const ThreadInfo& thread : list_threads().threads)
    if (thread.name == name) return thread.operation;
  return "no thread";
}

TEST_F(SerialExecutorTest, SaysWhatItsThreadDoes) {
  post_and_block();
  EXPECT_EQ(operation_of_thread("test"), "execute request");
  release();
  EXPECT_TRUE(test::eventually([] { return operation_of_thread("test") == "wait for requests"; }));
}

TEST_F(SerialExecutorTest, ExecutesRequestsInOrder) {
  post_and_block();
  EXPECT_EQ(executor_.post(1), PostResult::kPosted);
  EXPECT_EQ(executor_.post(2), PostResult::kPosted);
  release();
  EXPECT_TRUE(executor_.drain(kPatience));
  EXPECT_THAT(executed_, ElementsAre(0, 1, 2));
  EXPECT_FALSE(was_stopped_);
}

TEST_F(SerialExecutorTest, RejectsRequestWithoutRoom) {
  post_and_block();
  for (const int number : {1, 2}) EXPECT_EQ(executor_.post(number), PostResult::kPosted);
  EXPECT_EQ(executor_.post(3), PostResult::kFull);
  release();
  EXPECT_TRUE(executor_.drain(kPatience));
  EXPECT_THAT(executed_, ElementsAre(0, 1, 2));
}

TEST_F(SerialExecutorTest, RejectsRequestsAfterDrainAndClose) {
  EXPECT_TRUE(executor_.drain(kPatience));
  EXPECT_EQ(executor_.post(1), PostResult::kClosed);
  EXPECT_THAT(executor_.close(), IsEmpty());
  EXPECT_EQ(executor_.post(1), PostResult::kClosed);
  EXPECT_TRUE(executor_.join(kPatience).ok());
  EXPECT_THAT(executed_, IsEmpty());
}

TEST_F(SerialExecutorTest, DrainsAtMostForTimeout) {
  post_and_block();
  EXPECT_FALSE(executor_.drain(milliseconds(0))) << "the request is being executed";
  release();
  EXPECT_TRUE(executor_.drain(kPatience));
}

TEST_F(SerialExecutorTest, ReturnsWaitingRequestsWhenClosed) {
  post_and_block();
  for (const int number : {1, 2}) EXPECT_EQ(executor_.post(number), PostResult::kPosted);
  EXPECT_THAT(executor_.close(), ElementsAre(1, 2));
  release();
  EXPECT_TRUE(executor_.join(kPatience).ok());
  EXPECT_THAT(executed_, ElementsAre(0));
  EXPECT_TRUE(was_stopped_);
}

TEST(SerialExecutor, DestroysRequestWhenExecuted) {
  const auto shared = std::make_shared<int>();
  SerialExecutor<std::shared_ptr<int>> executor("test", 1, [](auto&, const auto&) {});
  EXPECT_EQ(executor.post(shared), PostResult::kPosted);
  EXPECT_TRUE(executor.drain(kPatience));
  EXPECT_EQ(shared.use_count(), 1);
}

TEST(SerialExecutor, ReportsException) {
  SerialExecutor<int> executor("test", 1,
                               [](auto&, const auto&) { throw std::runtime_error("broken"); });
  EXPECT_EQ(executor.post(1), PostResult::kPosted);
  EXPECT_EQ(executor.join(kPatience).message(), "broken");
}

TEST(SerialExecutor, RejectsRequestsAfterException) {
  std::latch posted{1};
  SerialExecutor<int> executor("test", 2, [&posted](auto&, const auto&) {
    posted.wait();
    throw std::runtime_error("broken");
  });
  for (const int number : {1, 2}) EXPECT_EQ(executor.post(number), PostResult::kPosted);
  posted.count_down();
  EXPECT_FALSE(executor.drain(std::chrono::hours(24))) << "it does not wait for the second one";
  EXPECT_FALSE(executor.join(kPatience).ok());
  EXPECT_EQ(executor.post(3), PostResult::kClosed);
  EXPECT_THAT(executor.close(), ElementsAre(2));
}

}  // namespace
}  // namespace stoker
