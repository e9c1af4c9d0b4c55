#include "shared/queue/queue_runner.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <latch>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/eventually.h"
#include "tests/support/machine_slowness.h"

namespace stoker::queue {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const auto kRunnerTimeout = test::scaled(60s);
constexpr int kRunners = 13;  // of the program whose life cycle the tests repeat
constexpr int kOwnThreads = 5;

std::unique_ptr<Queue> make_queue(const std::string& name, int64_t capacity) {
  auto made = Queue::create({.name = name,
                             .capacity = capacity,
                             .components = {{.name = "", .dtype = DType::kI64, .shape = Shape()}}});
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return *std::move(made);
}

Status enqueue_number(Queue& queue, int64_t number, const std::stop_token& stop) {
  return queue.enqueue(Tuple{Tensor::scalar(number)}, stop);
}

Result<int64_t> dequeue_number(Queue& queue) {
  STOKER_ASSIGN_OR_RETURN(const Tuple element,
                          queue.dequeue({}, std::chrono::steady_clock::now() + kRunnerTimeout));
  return element[0].value<int64_t>();
}

int count_queue_threads(const ThreadList& list, ThreadState state, const std::string& operation) {
  return static_cast<int>(std::ranges::count_if(list.threads, [&](const ThreadInfo& thread) {
    return thread.is_queue_thread && thread.state == state && thread.operation == operation;
  }));
}

int count_queue_threads(const ThreadList& list, ThreadState state) {
  return static_cast<int>(std::ranges::count_if(list.threads, [&](const ThreadInfo& thread) {
    return thread.is_queue_thread && thread.state == state;
  }));
}

// A runner that enqueues 0, 1, … until a stop.
EnqueueOperation count_forever(Queue& queue) {
  return [&queue, next = std::make_shared<std::atomic<int64_t>>(0)](const std::stop_token& stop) {
    return enqueue_number(queue, (*next)++, stop);
  };
}

// ---- The life cycle of 13 runners

class QueueRunnerLifeCycleTest : public testing::Test {
 protected:
  QueueRunnerLifeCycleTest() {
    for (const char* name : {"main", "trainer", "checkpoints", "metrics", "log"}) {
      own_.start(name, [this](std::stop_token) {
        own_.wait_for_stop(kRunnerTimeout);
        return Status();
      });
    }
    for (int i = 0; i < kRunners; ++i)
      queues_.push_back(make_queue("queue-" + std::to_string(i), 1));
  }

  void add_runners(const std::function<EnqueueOperation(Queue&)>& make_operation) {
    for (const auto& queue : queues_) runners_.add_queue_runner(*queue, {make_operation(*queue)});
  }
  bool eventually_counts(ThreadState state, const std::string& operation, int number) {
    return eventually(
        [&] { return count_queue_threads(runners_.list_threads(), state, operation) == number; });
  }
  int own_threads() const {
    int count = 0;
    for (const ThreadInfo& thread : runners_.list_threads().threads)
      if (!thread.is_queue_thread) ++count;
    return count;
  }

  Coordinator own_;
  std::vector<std::unique_ptr<Queue>> queues_;
  QueueRunnerRegistry runners_;
  Coordinator coordinator_;  // destroyed first: joins the threads
};

TEST_F(QueueRunnerLifeCycleTest, KeepsEnqueueThreadsWithoutCoordinator) {
  add_runners(count_forever);
  EXPECT_THAT(runners_.start_queue_runners(nullptr), SizeIs(kRunners));
  EXPECT_TRUE(eventually_counts(ThreadState::kWaiting, "enqueue", kRunners));
  EXPECT_EQ(own_threads(), kOwnThreads);
  EXPECT_THAT(runners_.list_threads().threads, SizeIs(18));
}

TEST_F(QueueRunnerLifeCycleTest, StopsThreadsThatWaitInFullQueues) {
  add_runners(count_forever);
  EXPECT_THAT(runners_.start_queue_runners(&coordinator_), SizeIs(2 * kRunners));
  EXPECT_TRUE(eventually_counts(ThreadState::kWaiting, "enqueue", kRunners));
  EXPECT_TRUE(eventually_counts(ThreadState::kWaiting, "wait for stop", kRunners));
  EXPECT_THAT(runners_.list_threads().threads, SizeIs(31));
  coordinator_.request_stop();
  EXPECT_TRUE(coordinator_.join(kRunnerTimeout).ok());
  const ThreadList list = runners_.list_threads();
  EXPECT_EQ(count_queue_threads(list, ThreadState::kStopped), 2 * kRunners);
  EXPECT_EQ(own_threads(), kOwnThreads);
  for (const auto& queue : queues_) {
    EXPECT_TRUE(queue->is_closed());
    EXPECT_EQ(*dequeue_number(*queue), 0);  // the element that fitted remains
    EXPECT_EQ(dequeue_number(*queue).status().code(), StatusCode::kClosed);
  }
}

TEST_F(QueueRunnerLifeCycleTest, NamesThreadsThatSleepInReads) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd source(ends[0]);
  UniqueFd writer(ends[1]);
  add_runners([&source](Queue&) {
    return [fd = source.get()](const std::stop_token&) -> Status {
      static constexpr ThreadActivity kRead{.operation = "read"};
      const ScopedActivity reading(kRead);
      char byte = 0;
      if (::read(fd, &byte, 1) < 0) return Status::from_errno(errno, "read");
      return Status(StatusCode::kClosed, "end of the source");
    };
  });
  runners_.start_queue_runners(&coordinator_);
  EXPECT_TRUE(eventually_counts(ThreadState::kSleeping, "read", kRunners));
  coordinator_.request_stop();
  const Status late = coordinator_.join(0s);
  EXPECT_EQ(late.code(), StatusCode::kTimedOut);
  for (const auto& queue : queues_)
    EXPECT_THAT(late.message(), HasSubstr(queue->name() + "/enqueue-0"));
  EXPECT_EQ(count_queue_threads(runners_.list_threads(), ThreadState::kSleeping, "read"), kRunners);
  writer.reset();  // ends the reads
  EXPECT_TRUE(coordinator_.join(kRunnerTimeout).ok());
  EXPECT_EQ(count_queue_threads(runners_.list_threads(), ThreadState::kStopped), 2 * kRunners);
}

TEST_F(QueueRunnerLifeCycleTest, ReportsFirstErrorWhenAllThreadsFail) {
  std::latch all_started(kRunners);  // otherwise the first failure ends the others before they fail
  add_runners([&all_started](Queue& queue) {
    return [&](const std::stop_token&) -> Status {
      all_started.arrive_and_wait();
      return Status(StatusCode::kIoError, "read " + queue.name() + ".tfrecord: bad sector");
    };
  });
  runners_.start_queue_runners(&coordinator_);
  const Status status = coordinator_.join(kRunnerTimeout);
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_THAT(status.message(), testing::MatchesRegex("(queue-[0-9]+)/enqueue-0: read "
                                                      "queue-[0-9]+.tfrecord: bad sector"));
  const ThreadList list = runners_.list_threads();
  EXPECT_EQ(count_queue_threads(list, ThreadState::kFailed), kRunners);
  EXPECT_EQ(count_queue_threads(list, ThreadState::kStopped), kRunners);
  for (const auto& queue : queues_)  // the cause, not the end of the data
    EXPECT_EQ(dequeue_number(*queue).status().code(), StatusCode::kIoError);
}

TEST_F(QueueRunnerLifeCycleTest, ListsThreadsBeforeTheirStart) {
  add_runners(count_forever);
  std::vector<QueueThread> threads = runners_.start_queue_runners(&coordinator_, false);
  ASSERT_THAT(threads, SizeIs(2 * kRunners));
  EXPECT_EQ(threads[0].name(), "queue-0/enqueue-0");
  EXPECT_EQ(threads[1].name(), "queue-0/close");
  EXPECT_EQ(count_queue_threads(runners_.list_threads(), ThreadState::kNotStarted), 2 * kRunners);
  EXPECT_THAT(runners_.start_queue_runners(&coordinator_), IsEmpty());
  for (QueueThread& thread : threads) {
    thread.start();
    thread.start();  // no effect
  }
  EXPECT_TRUE(eventually_counts(ThreadState::kWaiting, "enqueue", kRunners));
  coordinator_.request_stop();
  EXPECT_TRUE(coordinator_.join(kRunnerTimeout).ok());
  EXPECT_EQ(count_queue_threads(runners_.list_threads(), ThreadState::kStopped), 2 * kRunners);
}

// ---- One runner

TEST(QueueRunnerTest, ClosesQueueWhenLastThreadEnds) {
  const auto queue = make_queue("examples", 4);
  std::atomic<int64_t> next = 0;
  const EnqueueOperation fifteen = [&](const std::stop_token& stop) -> Status {
    const int64_t number = next++;
    if (number >= 15) return Status(StatusCode::kClosed, "end of the source");
    return enqueue_number(*queue, number, stop);
  };
  QueueRunner runner(*queue, {fifteen, fifteen, fifteen});
  runner.create_threads(nullptr);
  int64_t sum = 0;
  for (int i = 0; i < 15; ++i) sum += *dequeue_number(*queue);
  EXPECT_EQ(sum, 14 * 15 / 2);
  EXPECT_EQ(dequeue_number(*queue).status().code(), StatusCode::kClosed);
  EXPECT_TRUE(runner.status().ok());
}

TEST(QueueRunnerTest, ClosesQueueWithCauseWhenThreadFails) {
  const auto queue = make_queue("examples", 4);
  std::atomic<bool> has_enqueued = false;
  QueueRunner runner(*queue, {[&](const std::stop_token& stop) -> Status {
                                if (has_enqueued.exchange(true))
                                  return Status(StatusCode::kIoError,
                                                "read a.tfrecord: bad sector");
                                return enqueue_number(*queue, 7, stop);
                              },
                              [](const std::stop_token& stop) -> Status {
                                while (!stop.stop_requested()) std::this_thread::yield();
                                return {};
                              }});
  runner.create_threads(nullptr);
  EXPECT_TRUE(eventually([&] { return queue->is_closed(); }));
  EXPECT_EQ(*dequeue_number(*queue), 7);
  const Status cause = dequeue_number(*queue).status();
  EXPECT_EQ(cause.code(), StatusCode::kIoError);
  EXPECT_THAT(cause.message(), HasSubstr("examples/enqueue-0: read a.tfrecord: bad sector"));
  EXPECT_EQ(runner.status().message(), "examples/enqueue-0: read a.tfrecord: bad sector");
}

TEST(QueueRunnerTest, LetsCoordinatorJoinWhenOperationsHaveEnded) {
  const auto queue = make_queue("examples", 4);
  std::atomic<int64_t> next = 0;
  const EnqueueOperation three = [&](const std::stop_token& stop) -> Status {
    const int64_t number = next++;
    if (number >= 3) return Status(StatusCode::kClosed, "end of the source");
    return enqueue_number(*queue, number, stop);
  };
  Coordinator coordinator;
  QueueRunner runner(*queue, {three, three});
  runner.create_threads(&coordinator);
  EXPECT_TRUE(coordinator.join(kRunnerTimeout).ok());  // no stop is requested
  EXPECT_FALSE(coordinator.should_stop());
  EXPECT_TRUE(coordinator.all_joined());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(dequeue_number(*queue).ok());
  EXPECT_EQ(dequeue_number(*queue).status().code(), StatusCode::kClosed);
}

TEST(QueueRunnerTest, ReportsEndAfterCancelledStop) {
  const auto queue = make_queue("examples", 4);
  Coordinator coordinator;
  QueueRunner runner(*queue, {count_forever(*queue)});
  runner.create_threads(&coordinator);
  EXPECT_TRUE(eventually([&] { return queue->waiters().size() == 1; }));
  coordinator.request_stop(Status(StatusCode::kCancelled, "interrupted"));
  EXPECT_EQ(coordinator.join(kRunnerTimeout).code(), StatusCode::kCancelled);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(dequeue_number(*queue).ok());
  EXPECT_EQ(dequeue_number(*queue).status().code(), StatusCode::kClosed);
}

TEST(QueueRunnerTest, ReportsExceptionOfOperation) {
  const auto queue = make_queue("examples", 4);
  Coordinator coordinator;
  QueueRunner runner(*queue, {[](const std::stop_token&) -> Status {
    throw std::runtime_error("broken decoder");
  }});
  runner.create_threads(&coordinator);
  const Status status = coordinator.join(kRunnerTimeout);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message(), "examples/enqueue-0: broken decoder");
  EXPECT_THAT(dequeue_number(*queue).status().message(), HasSubstr("broken decoder"));
}

TEST(QueueRunnerTest, GivesReasonOfStopToConsumers) {
  const auto queue = make_queue("examples", 4);
  Coordinator coordinator;
  QueueRunner runner(*queue, {[](const std::stop_token& stop) -> Status {
    while (!stop.stop_requested()) std::this_thread::yield();
    return Status(StatusCode::kCancelled, "stop requested");
  }});
  runner.create_threads(&coordinator);
  Status seen;
  coordinator.start("trainer", [&](std::stop_token) {
    seen = dequeue_number(*queue).status();
    return Status();
  });
  EXPECT_TRUE(eventually([&] { return queue->waiters().size() == 1; }));
  coordinator.request_stop(Status(StatusCode::kNoSpace, "write metrics: disk full"));
  EXPECT_EQ(coordinator.join(kRunnerTimeout).code(), StatusCode::kNoSpace);
  EXPECT_EQ(seen.code(), StatusCode::kNoSpace);
  EXPECT_THAT(seen.message(), HasSubstr("write metrics: disk full"));
}

TEST(QueueRunnerTest, CancelsOperationThatIgnoresStop) {
  const auto queue = make_queue("examples", 1);
  const EnqueueOperation stubborn = [&](const std::stop_token&) {
    return enqueue_number(*queue, 1, std::stop_token());
  };
  Coordinator coordinator;
  QueueRunner runner(*queue, {stubborn});
  runner.create_threads(&coordinator);
  EXPECT_TRUE(eventually([&] { return queue->waiters().size() == 1; }));
  coordinator.request_stop();
  EXPECT_TRUE(coordinator.join(kRunnerTimeout).ok());
  const auto other = make_queue("other", 1);
  const EnqueueOperation also_stubborn = [&](const std::stop_token&) {
    return enqueue_number(*other, 1, std::stop_token());
  };
  {
    QueueRunner without_coordinator(*other, {also_stubborn});
    without_coordinator.create_threads(nullptr);
    EXPECT_TRUE(eventually([&] { return other->waiters().size() == 1; }));
  }
  EXPECT_TRUE(other->is_closed());
}

TEST(QueueRunnerTest, ListsConsumerWithQueueThatItWaitsFor) {
  const auto queue = make_queue("examples", 4);
  QueueRunnerRegistry registry;
  Coordinator coordinator;
  registry.add_queue_runner(*queue, {[](const std::stop_token& stop) -> Status {
    while (!stop.stop_requested()) std::this_thread::yield();
    return {};
  }});
  registry.start_queue_runners(&coordinator);
  coordinator.start("trainer",
                    [&](std::stop_token stop) { return queue->dequeue_many(3, stop).status(); });
  std::vector<ThreadInfo> consumers;
  EXPECT_TRUE(eventually([&] {
    consumers = registry.list_threads().threads;
    std::erase_if(consumers, [](const ThreadInfo& thread) {
      return thread.name != "trainer" || thread.state != ThreadState::kWaiting;
    });
    return !consumers.empty();
  }));
  ASSERT_THAT(consumers, SizeIs(1));
  EXPECT_FALSE(consumers[0].is_queue_thread);
  EXPECT_EQ(consumers[0].queue, "examples");
  EXPECT_EQ(consumers[0].operation, "dequeue_many 0/3");
  coordinator.request_stop();
  EXPECT_TRUE(coordinator.join(kRunnerTimeout).ok());
}

TEST(QueueRunnerTest, ListsQueueWithoutNameByType) {
  const auto queue = make_queue("", 1);
  QueueRunnerRegistry registry;
  Coordinator coordinator;
  registry.add_queue_runner(*queue, {count_forever(*queue)});
  registry.start_queue_runners(&coordinator);
  EXPECT_TRUE(eventually([&] { return queue->waiters().size() == 1; }));
  for (const ThreadInfo& thread : registry.list_threads().threads)
    EXPECT_EQ(thread.queue, "FIFOQueue") << thread.name;
  coordinator.request_stop();
  EXPECT_TRUE(coordinator.join(kRunnerTimeout).ok());
}

}  // namespace
}  // namespace stoker::queue
