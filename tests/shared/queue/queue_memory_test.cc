// Operations without memory: each allocation of an operation fails in turn, and no element is lost.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "tests/shared/queue/queue_values.h"

namespace {

// Allocations of the calling thread that succeed; negative: all.
thread_local int64_t allowed_allocations = -1;

[[gnu::noinline]] void* allocate_or_null(size_t bytes, size_t alignment) {
  if (allowed_allocations == 0) return nullptr;
  if (allowed_allocations > 0) --allowed_allocations;
  return std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
}

void* allocate_or_throw(size_t bytes, size_t alignment) {
  void* const memory = allocate_or_null(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

constexpr size_t kAlignment = alignof(std::max_align_t);

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) { return allocate_or_throw(bytes, kAlignment); }
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return allocate_or_null(bytes, kAlignment);
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment,
                                     const std::nothrow_t&) noexcept {
  return allocate_or_null(bytes, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace stoker::queue {
namespace {

constexpr int64_t kElements = 16;  // fill a ring
constexpr int64_t kMaxAllocations = 1000;

// Runs `operation` in this thread with `number` allocations; kOutOfMemory also for an exception.
template <typename Operation>
StatusCode run_with_allocations(int64_t number, const Operation& operation) {
  allowed_allocations = number;
  StatusCode code = StatusCode::kOutOfMemory;
  try {
    code = operation();
  } catch (const std::bad_alloc&) {
  }
  allowed_allocations = -1;
  return code;
}

// Three components, so that a tuple needs an allocation; with a priority, four.
class QueueMemoryTest : public ::testing::TestWithParam<QueueType> {
 protected:
  static constexpr int kComponents = 3;

  std::unique_ptr<Queue> make(int64_t capacity, int64_t elements) const {
    const Component component = scalar_component();
    auto queue = make_queue({.type = GetParam(),
                             .capacity = capacity,
                             .components = {component, component, component}});
    for (int64_t i = 0; i < elements; ++i)
      EXPECT_TRUE(queue->enqueue(element(i), kNoStop, kNoWait).ok());
    return queue;
  }
  bool is_priority() const { return GetParam() == QueueType::kPriority; }
  // Equal priorities: in the order of arrival.
  Tuple element(int64_t number) const {
    Tuple tuple;
    if (is_priority()) tuple.push_back(Tensor::scalar(int64_t{1}));
    for (int i = 0; i < kComponents; ++i) tuple.push_back(Tensor::scalar(number));
    return tuple;
  }
  Tuple numbers(int64_t first, int64_t count) const {
    std::vector<int64_t> values(static_cast<size_t>(count), 1);
    Tuple tuple;
    if (is_priority()) tuple.push_back(Tensor::vector(std::span<const int64_t>(values)));
    for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = first + i;
    for (int i = 0; i < kComponents; ++i)
      tuple.push_back(Tensor::vector(std::span<const int64_t>(values)));
    return tuple;
  }
  // What a queue holds, in its order; sorted if that is random.
  std::vector<int64_t> drain(Queue& queue) const {
    std::vector<int64_t> values;
    for (auto next = queue.dequeue(kNoStop, kNoWait); next.ok();
         next = queue.dequeue(kNoStop, kNoWait))
      values.push_back(next->back().value<int64_t>());
    if (GetParam() == QueueType::kRandomShuffle) std::ranges::sort(values);
    return values;
  }
  static std::vector<int64_t> sequence(int64_t first, int64_t count) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(first + i);
    return values;
  }
};

TEST_P(QueueMemoryTest, EnqueueFailsWithoutLosingElements) {
  StatusCode code = StatusCode::kOutOfMemory;
  for (int64_t n = 0; code != StatusCode::kOk; ++n) {
    ASSERT_LT(n, kMaxAllocations);
    const auto queue = make(-1, kElements);
    Tuple one = element(kElements);
    code = run_with_allocations(
        n, [&] { return queue->enqueue(std::move(one), kNoStop, kNoWait).code(); });
    const bool added = code == StatusCode::kOk;
    if (!added) {
      EXPECT_EQ(code, StatusCode::kOutOfMemory);
      EXPECT_EQ(one.back().value<int64_t>(), kElements);  // remains with the caller
    }
    EXPECT_EQ(drain(*queue), sequence(0, kElements + (added ? 1 : 0)));
  }
}

TEST_P(QueueMemoryTest, EnqueueManyLeavesRestToCaller) {
  constexpr int64_t kMany = 40;
  StatusCode code = StatusCode::kOutOfMemory;
  for (int64_t n = 0; code != StatusCode::kOk; ++n) {
    ASSERT_LT(n, kMaxAllocations);
    const auto queue = make(-1, kElements);
    Tuple many = numbers(kElements, kMany);
    code = run_with_allocations(
        n, [&] { return queue->enqueue_many(std::move(many), kNoStop, kNoWait).code(); });
    std::vector<int64_t> all = drain(*queue);
    if (code != StatusCode::kOk) {
      EXPECT_EQ(code, StatusCode::kOutOfMemory);
      for (const int64_t value : values_of(many.back())) all.push_back(value);
    }
    EXPECT_EQ(all, sequence(0, kElements + kMany));
  }
}

TEST_P(QueueMemoryTest, DequeueManyTakesAllOrNothing) {
  constexpr int64_t kMany = 10;
  StatusCode code = StatusCode::kOutOfMemory;
  for (int64_t n = 0; code != StatusCode::kOk; ++n) {
    ASSERT_LT(n, kMaxAllocations);
    const auto queue = make(kElements, kElements);
    Result<Tuple> taken = Tuple();
    code = run_with_allocations(n, [&] {
      taken = queue->dequeue_many(kMany, kNoStop, kNoWait);
      return taken.status().code();
    });
    std::vector<int64_t> all;
    if (code == StatusCode::kOk)
      all = values_of(taken->back());
    else
      EXPECT_EQ(code, StatusCode::kOutOfMemory);
    for (const int64_t value : drain(*queue)) all.push_back(value);
    if (GetParam() == QueueType::kRandomShuffle) std::ranges::sort(all);
    EXPECT_EQ(all, sequence(0, kElements));
  }
}

// A dequeue that runs the enqueue of another thread is not affected by the failure of that one.
TEST_P(QueueMemoryTest, DequeueSucceedsWhenWaitingEnqueueFails) {
  constexpr int64_t kMany = 5;
  bool enqueued = false;
  for (int64_t n = 0; !enqueued; ++n) {
    ASSERT_LT(n, kMaxAllocations);
    const auto queue = make(kElements, kElements);
    Tuple many = numbers(kElements, kMany);
    StatusCode code = StatusCode::kOk;
    std::jthread other([&] { code = queue->enqueue_many(std::move(many), kNoStop).code(); });
    wait_for_waiters(*queue, 1);
    std::vector<int64_t> all;
    all.reserve(kElements + kMany);
    for (int64_t i = 0; i < kMany; ++i)
      EXPECT_EQ(run_with_allocations(i == 0 ? n : -1,
                                     [&] {
                                       const auto taken = queue->dequeue(kNoStop);
                                       if (taken.ok())
                                         all.push_back(taken->back().value<int64_t>());
                                       return taken.status().code();
                                     }),
                StatusCode::kOk);
    other.join();
    enqueued = code == StatusCode::kOk;
    for (const int64_t value : drain(*queue)) all.push_back(value);
    if (!enqueued) {
      EXPECT_EQ(code, StatusCode::kOutOfMemory);
      for (const int64_t value : values_of(many.back())) all.push_back(value);
    }
    if (GetParam() == QueueType::kRandomShuffle) std::ranges::sort(all);
    EXPECT_EQ(all, sequence(0, kElements + kMany));
  }
}

TEST_P(QueueMemoryTest, ClosesWithoutMemory) {
  const auto queue = make(kElements, 2);
  EXPECT_EQ(run_with_allocations(0,
                                 [&] {
                                   queue->start_close(false);
                                   return StatusCode::kOk;
                                 }),
            StatusCode::kOk);
  EXPECT_TRUE(queue->is_closed());
  EXPECT_EQ(drain(*queue), sequence(0, 2));
  EXPECT_EQ(run_with_allocations(0, [&] { return queue->dequeue(kNoStop).status().code(); }),
            StatusCode::kClosed);
}

INSTANTIATE_TEST_SUITE_P(Types, QueueMemoryTest,
                         ::testing::Values(QueueType::kFIFO, QueueType::kRandomShuffle,
                                           QueueType::kPaddingFIFO, QueueType::kPriority),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace stoker::queue
