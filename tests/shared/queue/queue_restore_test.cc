// A queue that is restored from what it held when a batch was taken gives the same batches as the
// original.
#include <algorithm>
#include <numeric>
#include <optional>

#include <gtest/gtest.h>

#include "tests/shared/queue/queue_values.h"

namespace stoker::queue {
namespace {

constexpr int64_t kCapacity = 10, kBatch = 3, kSource = 50;

// What a checkpoint holds after a batch.
struct SavedQueue {
  std::vector<Tuple> elements;
  std::optional<GeneratorState> generator;
  int64_t last = -1;  // number of the last element that is in the queue or was taken
};

struct RestoreCase {
  QueueType type;
  int64_t min_after_dequeue;
};

class QueueRestoreTest : public ::testing::TestWithParam<RestoreCase> {
 protected:
  std::unique_ptr<Queue> make(std::optional<uint64_t> seed) const {
    QueueOptions options{.type = GetParam().type,
                         .capacity = kCapacity,
                         .min_after_dequeue = GetParam().min_after_dequeue,
                         .seed = seed,
                         .components = {scalar_component()}};
    if (options.type != QueueType::kRandomShuffle) options.seed.reset();
    if (options.type == QueueType::kPaddingFIFO)
      options.components.push_back(
          {.name = "", .dtype = DType::kI64, .shape = Shape({kUnknownExtent})});
    return make_queue(std::move(options));
  }

  static Tuple make_element(const Queue& queue, int64_t number) {
    Tuple tuple;
    if (queue.type() == QueueType::kPriority) tuple.push_back(Tensor::scalar(number * 7 % 4));
    tuple.push_back(Tensor::scalar(number));
    if (queue.type() == QueueType::kPaddingFIFO) {
      std::vector<int64_t> values(static_cast<size_t>(number % 6));
      std::iota(values.begin(), values.end(), number);
      tuple.push_back(Tensor::vector(std::span<const int64_t>(values)));
    }
    return tuple;
  }
  static size_t number_component(const Queue& queue) {
    return queue.type() == QueueType::kPriority ? 1 : 0;
  }

  // Enqueues `numbers`, then ends.
  static std::jthread start_reader(Queue& queue, std::vector<int64_t> numbers) {
    return std::jthread(
        [&queue, numbers = std::move(numbers), producer = queue.add_producer("reader")]() mutable {
          for (const int64_t number : numbers)
            ASSERT_TRUE(queue.enqueue(make_element(queue, number), kNoStop).ok());
          producer.end({});
        });
  }
  static std::vector<int64_t> numbers_from(int64_t first) {
    std::vector<int64_t> numbers(static_cast<size_t>(kSource - first));
    std::iota(numbers.begin(), numbers.end(), first);
    return numbers;
  }

  // The batches until the end, and what the queue held after each.
  static void consume(Queue& queue, std::vector<std::string>& batches,
                      std::vector<SavedQueue>& saved, std::vector<int64_t>& taken) {
    const size_t component = number_component(queue);
    int64_t last = -1;
    const BatchOptions options{
        .min_size = kCapacity, .on_taken = [&](const QueueContents& contents) {
          SavedQueue& state = saved.emplace_back();
          for (const Tuple& element : contents.batch())
            last = std::max(last, element[component].value<int64_t>());
          contents.for_each([&](const Tuple& element) {
            last = std::max(last, element[component].value<int64_t>());
            state.elements.push_back(element);
          });
          EXPECT_EQ(static_cast<int64_t>(state.elements.size()), contents.size());
          state.generator = contents.generator();
          state.last = last;
        }};
    while (true) {
      const auto batch = queue.dequeue_up_to(kBatch, kNoStop, kNoDeadline, options);
      if (!batch.ok()) {
        EXPECT_EQ(batch.status().code(), StatusCode::kClosed);
        return;
      }
      std::string& text = batches.emplace_back();
      for (const Tensor& tensor : *batch) {
        text += to_string(tensor.shape());
        for (const int64_t value : values_of(tensor)) text += " " + std::to_string(value);
        text += "; ";
      }
      const std::vector<int64_t> numbers = values_of((*batch)[component]);
      taken.insert(taken.end(), numbers.begin(), numbers.end());
    }
  }
};

TEST_P(QueueRestoreTest, ContinuesWithSameBatchesWithOneReader) {
  std::vector<std::string> batches;
  std::vector<SavedQueue> saved;
  std::vector<int64_t> taken;
  const auto queue = make(11);
  std::jthread reader = start_reader(*queue, numbers_from(0));
  consume(*queue, batches, saved, taken);
  reader.join();
  ASSERT_EQ(saved.size(), batches.size());
  ASSERT_EQ(batches.size(), static_cast<size_t>((kSource + kBatch - 1) / kBatch));
  for (size_t i = 0; i < saved.size(); ++i) {
    SCOPED_TRACE("after batch " + std::to_string(i));
    const auto restored = make(std::nullopt);
    const int64_t size = static_cast<int64_t>(saved[i].elements.size());
    ASSERT_TRUE(restored->restore(saved[i].elements, saved[i].generator).ok());
    EXPECT_EQ(restored->size(), size);
    std::vector<std::string> rest;
    std::vector<SavedQueue> saved_again;
    std::jthread next_reader = start_reader(*restored, numbers_from(saved[i].last + 1));
    consume(*restored, rest, saved_again, taken);
    next_reader.join();
    const std::vector<std::string> expected(batches.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                            batches.end());
    EXPECT_EQ(rest, expected);
    if (!saved_again.empty()) {
      EXPECT_EQ(saved_again.back().generator, saved.back().generator);
    }
  }
}

// The order depends on the threads, but each element is in a batch, in the queue or unread.
TEST_P(QueueRestoreTest, ContinuesWithEachElementOnceWithSeveralReaders) {
  constexpr int64_t kReaders = 4;
  const auto range = [](int64_t reader, int64_t after) {
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < kSource; ++i)
      if (i % kReaders == reader && i > after) numbers.push_back(i);
    return numbers;
  };
  const auto queue = make(11);
  const size_t component = number_component(*queue);
  std::vector<int64_t> taken;
  std::vector<int64_t> last(kReaders, -1);
  SavedQueue saved;
  {
    std::stop_source stop;
    std::vector<std::jthread> readers;
    for (int64_t r = 0; r < kReaders; ++r)
      readers.emplace_back([&, r, token = stop.get_token()] {
        for (const int64_t number : range(r, -1))
          if (!queue->enqueue(make_element(*queue, number), token).ok()) return;
      });
    const BatchOptions options{.on_taken = [&](const QueueContents& contents) {
      saved = {.elements = {}, .generator = contents.generator()};
      const auto note = [&](const Tuple& element) {
        const auto number = element[component].value<int64_t>();
        int64_t& position = last[static_cast<size_t>(number % kReaders)];
        position = std::max(position, number);
      };
      for (const Tuple& element : contents.batch()) note(element);
      contents.for_each([&](const Tuple& element) {
        note(element);
        saved.elements.push_back(element);
      });
    }};
    for (int batch = 0; batch < 5; ++batch) {
      const auto result = queue->dequeue_many(kBatch, kNoStop, kNoDeadline, options);
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      const std::vector<int64_t> numbers = values_of((*result)[component]);
      taken.insert(taken.end(), numbers.begin(), numbers.end());
    }
    stop.request_stop();  // the program ends here; what it has enqueued since is lost with it
  }
  const auto restored = make(std::nullopt);
  ASSERT_TRUE(restored->restore(std::move(saved.elements), saved.generator).ok());
  std::vector<std::jthread> readers;
  {
    std::vector<Producer> producers;  // so that none is the last while others have not started
    for (int64_t r = 0; r < kReaders; ++r)
      producers.push_back(restored->add_producer("waits for all"));
    for (int64_t r = 0; r < kReaders; ++r)
      readers.push_back(start_reader(*restored, range(r, last[static_cast<size_t>(r)])));
    for (Producer& producer : producers) producer.end({});
  }
  std::vector<std::string> batches;
  std::vector<SavedQueue> ignored;
  consume(*restored, batches, ignored, taken);
  std::ranges::sort(taken);
  std::vector<int64_t> all(kSource);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(taken, all);
}

INSTANTIATE_TEST_SUITE_P(Types, QueueRestoreTest,
                         ::testing::Values(RestoreCase{QueueType::kFIFO, 0},
                                           RestoreCase{QueueType::kPaddingFIFO, 0},
                                           RestoreCase{QueueType::kRandomShuffle, 4},
                                           RestoreCase{QueueType::kPriority, 0}),
                         [](const auto& test) { return std::string(to_string(test.param.type)); });

TEST(QueueContentsTest, PrecedeWaitingEnqueues) {
  const auto queue = make_queue({.capacity = 3});
  ASSERT_TRUE(queue->enqueue_many(batch({1, 2, 3}), kNoStop).ok());
  std::jthread pending([&] { EXPECT_TRUE(queue->enqueue(scalar(4), kNoStop).ok()); });
  wait_for_waiters(*queue, 1);
  std::vector<int64_t> in_batch, remaining;
  const BatchOptions options{.on_taken = [&](const QueueContents& contents) {
    for (const Tuple& element : contents.batch()) in_batch.push_back(element[0].value<int64_t>());
    contents.for_each(
        [&](const Tuple& element) { remaining.push_back(element[0].value<int64_t>()); });
    EXPECT_FALSE(contents.generator().has_value());
  }};
  EXPECT_EQ(text_of(queue->dequeue_many(2, kNoStop, kNoDeadline, options)), "1 2");
  EXPECT_EQ(in_batch, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(remaining, (std::vector<int64_t>{3}));
  pending.join();
  EXPECT_EQ(queue->size(), 2);
}

TEST(QueueContentsTest, AreGivenOnceForBatchThatArrivesInParts) {
  const auto queue = make_queue({.capacity = 1});
  int calls = 0;
  const BatchOptions options{.on_taken = [&](const auto& contents) {
    ++calls;
    EXPECT_EQ(contents.batch().size(), 3u);
    EXPECT_EQ(contents.size(), 0);
  }};
  std::string taken;
  std::jthread consumer(
      [&] { taken = text_of(queue->dequeue_many(3, kNoStop, kNoDeadline, options)); });
  ASSERT_TRUE(queue->enqueue_many(batch({1, 2, 3, 4}), kNoStop).ok());
  consumer.join();
  EXPECT_EQ(taken, "1 2 3");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(queue->dequeue_many(5, kNoStop, kNoWait, options).status().code(),
            StatusCode::kTimedOut);
  EXPECT_EQ(calls, 1);
}

TEST(QueueRestoreValidationTest, AcceptsMoreElementsThanCapacity) {
  const auto queue = make_queue({.capacity = 2});
  ASSERT_TRUE(queue->restore({scalar(1), scalar(2), scalar(3)}).ok());
  EXPECT_EQ(queue->enqueue(scalar(4), kNoStop, kNoWait).code(), StatusCode::kTimedOut);
  EXPECT_EQ(text_of(queue->dequeue_many(3, kNoStop)), "1 2 3");
}

TEST(QueueRestoreValidationTest, RejectsWhatQueueCannotHold) {
  constexpr auto kInvalid = StatusCode::kInvalidArgument;
  using Elements = std::vector<Tuple>;
  EXPECT_EQ(make_queue({})->restore(Elements{Tuple{Tensor::scalar(1.0f)}}).code(), kInvalid);
  EXPECT_EQ(make_queue({})->restore({}, GeneratorState{}).code(), kInvalid);
  const auto priority =
      make_queue({.type = QueueType::kPriority,
                  .components = {{.name = "", .dtype = DType::kI64, .shape = std::nullopt}}});
  EXPECT_EQ(priority->restore(Elements{Tuple{batch({1})[0], Tensor::scalar(int64_t{1})}}).code(),
            kInvalid);
}

}  // namespace
}  // namespace stoker::queue
