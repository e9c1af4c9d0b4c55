// Threads with random operations: no element is lost or duplicated, and each consumer receives the
// elements of a producer in order.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "tests/shared/queue/queue_values.h"
#include "tests/support/eventually.h"

namespace stoker::queue {
namespace {

constexpr int64_t kProducers = 4, kConsumers = 4, kElements = 250;

struct QueueCase {
  QueueType type;
  int64_t capacity;
  int64_t min_after_dequeue;
};

// Seldom short: an operation that times out has made no progress.
Deadline random_deadline(std::mt19937& random) {
  if (random() % 8 != 0) return kNoDeadline;
  return std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 500);
}

// Numbers of a producer are consecutive.
Tuple numbers(const Queue& queue, int64_t producer, int64_t first, int64_t count) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(producer * kElements + first + i);
  Tuple tuple;
  for (size_t i = 0; i < queue.components().size(); ++i)
    tuple.push_back(Tensor::vector(std::span<const int64_t>(values)));
  return tuple;
}

void produce(Queue& queue, int64_t index, Producer producer) {
  std::mt19937 random(static_cast<uint32_t>(index));
  for (int64_t next = 0; next < kElements;) {
    const int64_t count = std::min<int64_t>(random() % 8, kElements - next);
    Tuple tuple = numbers(queue, index, next, count);
    Tuple element;
    for (const Tensor& tensor : tuple)
      if (count == 1) element.push_back(tensor.slice(0));
    // A failed attempt keeps what was not enqueued.
    Status status;
    EXPECT_TRUE(test::eventually([&] {
      status = count == 1 ? queue.enqueue(std::move(element), kNoStop, random_deadline(random))
                          : queue.enqueue_many(std::move(tuple), kNoStop, random_deadline(random));
      return status.code() != StatusCode::kTimedOut;
    }));
    ASSERT_TRUE(status.ok()) << status.to_string();
    next += count;
  }
  producer.end({});
}

void consume(Queue& queue, int64_t index, std::vector<int64_t>& received) {
  std::mt19937 random(static_cast<uint32_t>(100 + index));
  StatusCode code = StatusCode::kOk;
  const auto take = [&](const Result<Tuple>& result) {
    code = result.status().code();
    if (!result.ok()) return;
    const std::vector<int64_t> values = values_of(result->back());
    received.insert(received.end(), values.begin(), values.end());
  };
  while (code != StatusCode::kClosed) {
    std::stop_source stop;
    std::jthread canceller;
    const Deadline deadline = random_deadline(random);
    if (random() % 16 == 0)
      canceller = std::jthread([token = stop]() mutable { token.request_stop(); });
    const auto n = static_cast<int64_t>(1 + random() % 5);
    switch (random() % 3) {
      case 0:
        take(queue.dequeue(stop.get_token(), deadline));
        break;
      case 1:
        take(queue.dequeue_up_to(n, stop.get_token(), deadline));
        break;
      default:
        take(queue.dequeue_many(n, stop.get_token(), deadline));
        if (code == StatusCode::kClosed && queue.size() > 0) code = StatusCode::kOk;
    }
  }
}

class QueueThreadsTest : public ::testing::TestWithParam<QueueCase> {};

TEST_P(QueueThreadsTest, DeliverEachElementOnceAndInOrder) {
  const QueueCase& parameters = GetParam();
  const auto queue = make_queue({.type = parameters.type,
                                 .capacity = parameters.capacity,
                                 .min_after_dequeue = parameters.min_after_dequeue});
  std::vector<std::vector<int64_t>> received(kConsumers);
  {
    std::vector<Producer> producers;
    std::vector<std::jthread> threads;  // joined before the producers are destroyed
    for (int64_t i = 0; i < kProducers; ++i)
      producers.push_back(queue->add_producer("producer " + std::to_string(i)));
    for (int64_t i = 0; i < kProducers; ++i)
      threads.emplace_back(
          [&, i] { produce(*queue, i, std::move(producers[static_cast<size_t>(i)])); });
    for (int64_t i = 0; i < kConsumers; ++i)
      threads.emplace_back([&, i] { consume(*queue, i, received[static_cast<size_t>(i)]); });
  }
  std::vector<int> count(kProducers * kElements);
  for (const auto& values : received) {
    std::vector<int64_t> last(kProducers, -1);
    for (const int64_t value : values) {
      ++count[static_cast<size_t>(value)];
      int64_t& previous = last[static_cast<size_t>(value / kElements)];
      if (parameters.type == QueueType::kFIFO) {
        EXPECT_LT(previous, value);
      }
      previous = value;
    }
  }
  for (const int n : count) ASSERT_EQ(n, 1);
}

// Each side holds its own lock only while it needs not wait; at a full or empty queue, both.
TEST(QueueTwoThreadsTest, DeliverSingleElementsInOrderUntilClosed) {
  constexpr int64_t kSingles = 3000;
  for (const int64_t capacity : {1, 2, 16, 100, -1}) {
    const auto queue = make_queue({.type = QueueType::kFIFO, .capacity = capacity});
    std::vector<int64_t> received;
    {
      const std::jthread producer([&queue] {
        for (int64_t i = 0; i < kSingles; ++i) {
          Tuple element;
          element.push_back(Tensor::scalar(i));
          ASSERT_TRUE(queue->enqueue(std::move(element), kNoStop).ok());
        }
        queue->start_close(false);
      });
      for (;;) {
        // Some elements go back, to where the next dequeue looks for them.
        if (received.size() % 7 == 0) {
          EXPECT_FALSE(queue->dequeue_many(2 * kSingles, kNoStop, Deadline::min()).ok());
        }
        const auto element = queue->dequeue(kNoStop);
        if (!element.ok()) {
          EXPECT_EQ(element.status().code(), StatusCode::kClosed);
          break;
        }
        received.push_back((*element)[0].value<int64_t>());
      }
    }
    ASSERT_EQ(received.size(), kSingles) << "capacity " << capacity;
    for (int64_t i = 0; i < kSingles; ++i) ASSERT_EQ(received[static_cast<size_t>(i)], i);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, QueueThreadsTest,
                         ::testing::Values(QueueCase{QueueType::kFIFO, 1, 0},
                                           QueueCase{QueueType::kFIFO, 7, 0},
                                           QueueCase{QueueType::kFIFO, -1, 0},
                                           QueueCase{QueueType::kRandomShuffle, 12, 4},
                                           QueueCase{QueueType::kPriority, 3, 0}),
                         [](const auto& test) {
                           return std::string(to_string(test.param.type)) +
                                  std::to_string(test.index);
                         });

}  // namespace
}  // namespace stoker::queue
