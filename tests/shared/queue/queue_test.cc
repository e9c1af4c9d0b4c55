#include "shared/queue/queue.h"

#include <atomic>
#include <cstring>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/queue/queue_values.h"

namespace stoker::queue {
namespace {

using ::testing::HasSubstr;

StatusCode code_of(QueueOptions options) {
  return Queue::create(std::move(options)).status().code();
}

TEST(QueueOptionsTest, RejectsContradictions) {
  const Component known = scalar_component();
  const Component unknown{.name = "", .dtype = DType::kI64, .shape = Shape({kUnknownExtent})};
  const Component any{.name = "", .dtype = DType::kI64, .shape = std::nullopt};
  constexpr auto kInvalid = StatusCode::kInvalidArgument;
  EXPECT_EQ(code_of({.components = {}}), kInvalid);
  EXPECT_EQ(code_of({.capacity = 0, .components = {known}}), kInvalid);
  EXPECT_EQ(code_of({.components = {known, any}}), kInvalid);
  EXPECT_EQ(code_of({.components = {unknown}}), kInvalid);
  EXPECT_EQ(code_of({.type = QueueType::kPaddingFIFO, .components = {any}}), kInvalid);
  EXPECT_EQ(code_of({.components = {scalar_component("a"), scalar_component("a")}}), kInvalid);
  EXPECT_EQ(code_of({.components = {scalar_component("a"), known}}), kInvalid);
  EXPECT_EQ(code_of({.seed = 1, .components = {known}}), kInvalid);
  EXPECT_EQ(code_of({.type = QueueType::kRandomShuffle,
                     .capacity = 3,
                     .min_after_dequeue = 3,
                     .components = {known}}),
            kInvalid);
  EXPECT_EQ(code_of({.components = {known}}), StatusCode::kOk);
}

TEST(FIFOQueueTest, KeepsElementOfCallerWhenEnqueueTimesOut) {
  const auto queue = make_queue({.capacity = 1});
  ASSERT_TRUE(queue->enqueue(scalar(1), kNoStop).ok());
  Tuple element = scalar(2);
  EXPECT_EQ(queue->enqueue(std::move(element), kNoStop, kNoWait).code(), StatusCode::kTimedOut);
  ASSERT_EQ(element.size(), 1u);
  EXPECT_EQ(element[0].value<int64_t>(), 2);
}

TEST(FIFOQueueTest, LeavesRestOfBatchToCallerWhenEnqueueManyTimesOut) {
  const auto queue = make_queue({.capacity = 2});
  Tuple elements = batch({1, 2, 3, 4, 5});
  const Status status = queue->enqueue_many(std::move(elements), kNoStop, kNoWait);
  EXPECT_EQ(status.code(), StatusCode::kTimedOut);
  EXPECT_THAT(status.message(), HasSubstr("2 of 5"));
  EXPECT_EQ(values_of(elements[0]), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(queue->size(), 2);
}

TEST(FIFOQueueTest, RejectsTuplesThatDifferFromComponents) {
  const auto queue = make_queue({.components = {scalar_component(), scalar_component()}});
  constexpr auto kInvalid = StatusCode::kInvalidArgument;
  EXPECT_EQ(queue->enqueue(scalar(1), kNoStop).code(), kInvalid);
  EXPECT_EQ(queue->enqueue({Tensor::scalar(int64_t{1}), Tensor::scalar(1.0f)}, kNoStop).code(),
            kInvalid);
  EXPECT_EQ(queue->enqueue({Tensor::scalar(int64_t{1}), batch({1})[0]}, kNoStop).code(), kInvalid);
  EXPECT_EQ(queue->enqueue_many({batch({1, 2})[0], batch({1})[0]}, kNoStop).code(), kInvalid);
  EXPECT_EQ(queue->enqueue_many({batch({1})[0], Tensor::scalar(int64_t{1})}, kNoStop).code(),
            kInvalid);
  EXPECT_EQ(queue->size(), 0);
}

TEST(FIFOQueueTest, CannotBatchElementsOfUndeclaredShape) {
  const auto queue =
      make_queue({.components = {{.name = "", .dtype = DType::kI64, .shape = std::nullopt}}});
  ASSERT_TRUE(queue->enqueue(batch({1, 2, 3}), kNoStop).ok());
  ASSERT_TRUE(queue->enqueue(scalar(4), kNoStop).ok());
  EXPECT_EQ(queue->dequeue_many(2, kNoStop).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(text_of(queue->dequeue(kNoStop)), "1 2 3");
  EXPECT_EQ(text_of(queue->dequeue(kNoStop)), "4");
}

TEST(FIFOQueueTest, RejectsBatchLargerThanAddressSpace) {
  const auto queue = make_queue({});
  EXPECT_EQ(queue->dequeue_many(std::numeric_limits<int64_t>::max(), kNoStop).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(FIFOQueueTest, ReturnsElementsOfPartialBatchWhenDequeueManyTimesOut) {
  const auto queue = make_queue({});
  for (int64_t i = 1; i <= 3; ++i) ASSERT_TRUE(queue->enqueue(scalar(i), kNoStop).ok());
  EXPECT_EQ(queue->dequeue_many(4, kNoStop, kNoWait).status().code(), StatusCode::kTimedOut);
  EXPECT_EQ(queue->size(), 3);
  EXPECT_EQ(text_of(queue->dequeue_many(3, kNoStop)), "1 2 3");
}

TEST(FIFOQueueTest, ReturnsElementsOfPartialBatchToNextWaiterWhenCancelled) {
  const auto queue = make_queue({});
  for (int64_t i = 1; i <= 3; ++i) ASSERT_TRUE(queue->enqueue(scalar(i), kNoStop).ok());
  std::stop_source stop;
  StatusCode cancelled = StatusCode::kOk;
  std::jthread first([&] { cancelled = queue->dequeue_many(4, stop.get_token()).status().code(); });
  wait_for_waiters(*queue, 1);
  EXPECT_EQ(queue->size(), 0);
  std::string second_batch;
  std::jthread second([&] { second_batch = text_of(queue->dequeue_many(2, kNoStop)); });
  wait_for_waiters(*queue, 2);
  stop.request_stop();
  first.join();
  second.join();
  EXPECT_EQ(cancelled, StatusCode::kCancelled);
  EXPECT_EQ(second_batch, "1 2");
  EXPECT_EQ(text_of(queue->dequeue(kNoStop)), "3");
}

TEST(FIFOQueueTest, FailsImmediatelyWhenStopWasRequested) {
  const auto queue = make_queue({});
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(queue->enqueue(scalar(1), stop.get_token()).code(), StatusCode::kCancelled);
  ASSERT_TRUE(queue->enqueue(scalar(1), kNoStop).ok());
  EXPECT_EQ(queue->dequeue(stop.get_token()).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(queue->size(), 1);
}

TEST(FIFOQueueTest, ReportsWaitersInOrderOfArrival) {
  const auto queue = make_queue({.capacity = 1});
  std::jthread batch_thread([&] { EXPECT_EQ(text_of(queue->dequeue_many(3, kNoStop)), "1 2 3"); });
  wait_for_waiters(*queue, 1);
  std::jthread single_thread([&] { EXPECT_EQ(text_of(queue->dequeue(kNoStop)), "4"); });
  wait_for_waiters(*queue, 2);
  ASSERT_TRUE(queue->enqueue(scalar(1), kNoStop).ok());
  const std::vector<Waiter> waiters = queue->waiters();
  ASSERT_EQ(waiters.size(), 2u);
  EXPECT_EQ(waiters[0].operation, Operation::kDequeueMany);
  EXPECT_EQ(waiters[0].requested, 3);
  EXPECT_EQ(waiters[0].completed, 1);
  EXPECT_EQ(waiters[0].thread, batch_thread.get_id());
  EXPECT_EQ(waiters[1].operation, Operation::kDequeue);
  EXPECT_EQ(waiters[1].thread, single_thread.get_id());
  for (int64_t i = 2; i <= 4; ++i) ASSERT_TRUE(queue->enqueue(scalar(i), kNoStop).ok());
}

TEST(FIFOQueueTest, ClosesLaterWhenWaitForPendingEnqueuesTimesOut) {
  const auto queue = make_queue({.capacity = 1});
  ASSERT_TRUE(queue->enqueue(scalar(1), kNoStop).ok());
  std::jthread pending([&] { EXPECT_TRUE(queue->enqueue(scalar(2), kNoStop).ok()); });
  wait_for_waiters(*queue, 1);
  EXPECT_EQ(queue->close(false, kNoStop, kNoWait).code(), StatusCode::kTimedOut);
  EXPECT_FALSE(queue->is_closed());
  EXPECT_EQ(text_of(queue->dequeue_up_to(5, kNoStop)), "1 2");
  EXPECT_TRUE(queue->is_closed());
}

TEST(FIFOQueueTest, CanBeDestroyedWithUnfinishedClose) {
  const auto queue = make_queue({.capacity = 1});
  ASSERT_TRUE(queue->enqueue(scalar(1), kNoStop).ok());
  std::stop_source stop;
  std::jthread pending([&] { (void)queue->enqueue(scalar(2), stop.get_token()); });
  wait_for_waiters(*queue, 1);
  queue->start_close(false);
  queue->start_close(false);
  stop.request_stop();
  pending.join();
  EXPECT_TRUE(queue->is_closed());
}

TEST(QueueCauseTest, IsReportedInPlaceOfEnd) {
  const auto queue = make_queue({});
  ASSERT_TRUE(queue->enqueue(scalar(1), kNoStop).ok());
  Status blocked;
  std::jthread consumer([&] { blocked = queue->dequeue_many(2, kNoStop).status(); });
  wait_for_waiters(*queue, 1);
  queue->start_close(true, Status(StatusCode::kIoError, "shard 7: truncated"));
  consumer.join();
  EXPECT_EQ(blocked.code(), StatusCode::kIoError);
  EXPECT_THAT(blocked.message(), HasSubstr("shard 7: truncated"));
  EXPECT_EQ(text_of(queue->dequeue(kNoStop)), "1");
  EXPECT_EQ(queue->dequeue(kNoStop).status().code(), StatusCode::kIoError);
  EXPECT_THAT(queue->enqueue(scalar(2), kNoStop).message(), HasSubstr("shard 7: truncated"));
}

TEST(QueueCauseTest, IsNoNormalEnd) {
  const auto queue = make_queue({});
  queue->start_close(false, Status(StatusCode::kClosed, "end of names"));
  const Status status = queue->dequeue(kNoStop).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("closed: end of names"));
  const auto other = make_queue({});
  other->add_producer("reader").end(Status(StatusCode::kCancelled, "stopped"));
  EXPECT_EQ(other->dequeue(kNoStop).status().code(), StatusCode::kInternal);
}

TEST(ProducerTest, LastOneToEndClosesQueue) {
  const auto queue = make_queue({});
  Producer first = queue->add_producer("first");
  Producer second = queue->add_producer("second");
  ASSERT_TRUE(queue->enqueue(scalar(1), kNoStop).ok());
  first.end({});
  EXPECT_FALSE(queue->is_closed());
  second.end({});
  EXPECT_TRUE(queue->is_closed());
  EXPECT_EQ(text_of(queue->dequeue(kNoStop)), "1");
  EXPECT_EQ(queue->dequeue(kNoStop).status().code(), StatusCode::kClosed);
}

TEST(ProducerTest, WakesConsumerWithNameWhenLostWithoutStatus) {
  const auto queue = make_queue({});
  Status status;
  std::jthread consumer([&] { status = queue->dequeue(kNoStop).status(); });
  wait_for_waiters(*queue, 1);
  { const Producer lost = queue->add_producer("reader 3"); }
  consumer.join();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("reader 3"));
}

TEST(ProducerTest, FirstFailureIsTheCause) {
  const auto queue = make_queue({});
  Producer first = queue->add_producer("first");
  Producer second = queue->add_producer("second");
  first.end(Status(StatusCode::kIoError, "no such file"));
  second = Producer();
  EXPECT_EQ(queue->dequeue(kNoStop).status().code(), StatusCode::kIoError);
}

TEST(NamedComponentsTest, AreArrangedByName) {
  const auto queue = make_queue({.components = {scalar_component("x"), scalar_component("y")}});
  const auto tuple =
      queue->arrange({{"y", Tensor::scalar(int64_t{2})}, {"x", Tensor::scalar(int64_t{1})}});
  ASSERT_TRUE(tuple.ok());
  EXPECT_EQ((*tuple)[0].value<int64_t>(), 1);
  EXPECT_EQ(queue->arrange({{"x", Tensor::scalar(int64_t{1})}}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(queue->arrange({{"x", Tensor()}, {"z", Tensor()}}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(make_queue({})->arrange({{"", Tensor()}}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(RandomShuffleQueueTest, KeepsMinimumUntilClosed) {
  const auto queue = make_queue(
      {.type = QueueType::kRandomShuffle, .capacity = 10, .min_after_dequeue = 2, .seed = 7});
  ASSERT_TRUE(queue->enqueue_many(batch({1, 2, 3}), kNoStop).ok());
  std::set<std::string> seen{text_of(queue->dequeue(kNoStop))};
  EXPECT_EQ(queue->dequeue(kNoStop, kNoWait).status().code(), StatusCode::kTimedOut);
  queue->start_close(false);
  seen.insert(text_of(queue->dequeue(kNoStop)));
  seen.insert(text_of(queue->dequeue(kNoStop)));
  EXPECT_EQ(seen, (std::set<std::string>{"1", "2", "3"}));
  EXPECT_EQ(queue->dequeue(kNoStop).status().code(), StatusCode::kClosed);
}

TEST(RandomShuffleQueueTest, ReturnsElementsOfPartialBatchWhenDequeueManyTimesOut) {
  const auto queue = make_queue({.type = QueueType::kRandomShuffle, .seed = 7});
  ASSERT_TRUE(queue->enqueue_many(batch({1, 2, 3}), kNoStop).ok());
  EXPECT_EQ(queue->dequeue_many(4, kNoStop, kNoWait).status().code(), StatusCode::kTimedOut);
  EXPECT_EQ(queue->size(), 3);
}

TEST(PaddingFIFOQueueTest, RejectsBatchWhosePaddingExceedsLimit) {
  const auto queue = make_queue(
      {.type = QueueType::kPaddingFIFO,
       .max_batch_bytes = 64 * sizeof(int64_t),
       .components = {
           scalar_component(),
           {.name = "", .dtype = DType::kI64, .shape = Shape({kUnknownExtent, kUnknownExtent})}}});
  for (const Shape& shape : {Shape({6, 1}), Shape({1, 6})}) {
    auto tensor = Tensor::allocate(DType::kI64, shape);
    ASSERT_TRUE(tensor.ok());
    std::memset(tensor->mutable_data(), 0, tensor->bytes());
    Tuple element = scalar(1);
    element.push_back(*std::move(tensor));
    ASSERT_TRUE(queue->enqueue(std::move(element), kNoStop).ok());
  }
  const Status status = queue->dequeue_many(2, kNoStop).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("component 1 of 2 elements, padded to the largest "
                                          "extents [6, 6], exceeds the limit of 512 bytes"));
  EXPECT_EQ(queue->size(), 2);
  EXPECT_TRUE(queue->dequeue_many(1, kNoStop).ok());
}

std::unique_ptr<Queue> make_priority_queue(int64_t capacity) {
  return make_queue({.type = QueueType::kPriority, .capacity = capacity});
}

Status enqueue_with_priority(Queue& queue, int64_t priority, int64_t value) {
  return queue.enqueue({Tensor::scalar(priority), Tensor::scalar(value)}, kNoStop, kNoWait);
}

TEST(PriorityQueueTest, ReturnsSmallestPriorityFirstAndKeepsOrderWithinOne) {
  const auto queue = make_priority_queue(100);
  for (int64_t i = 0; i < 20; ++i)
    ASSERT_TRUE(enqueue_with_priority(*queue, i % 2 == 0 ? 5 : -5, i).ok());
  EXPECT_EQ(text_of(queue->dequeue_many(20, kNoStop)),
            "1 3 5 7 9 11 13 15 17 19 0 2 4 6 8 10 12 14 16 18");
}

TEST(PriorityQueueTest, ReturnsBatchLargerThanCapacity) {
  const auto queue = make_priority_queue(2);
  std::string result;
  std::jthread consumer([&] { result = text_of(queue->dequeue_many(4, kNoStop)); });
  wait_for_waiters(*queue, 1);
  for (const int64_t priority : {4, 3, 2, 1})
    ASSERT_TRUE(enqueue_with_priority(*queue, priority, priority).ok());
  consumer.join();
  EXPECT_EQ(result, "1 2 3 4");
  ASSERT_TRUE(enqueue_with_priority(*queue, 1, 1).ok());
  ASSERT_TRUE(enqueue_with_priority(*queue, 2, 2).ok());
  EXPECT_EQ(enqueue_with_priority(*queue, 3, 3).code(), StatusCode::kTimedOut);
}

TEST(PriorityQueueTest, ReturnsRemainingElementsAfterClose) {
  const auto queue = make_priority_queue(10);
  ASSERT_TRUE(enqueue_with_priority(*queue, 2, 2).ok());
  ASSERT_TRUE(enqueue_with_priority(*queue, 1, 1).ok());
  queue->start_close(false);
  EXPECT_EQ(text_of(queue->dequeue_up_to(5, kNoStop)), "1 2");
  EXPECT_EQ(queue->dequeue_up_to(5, kNoStop).status().code(), StatusCode::kClosed);
}

// ---- Batches whose elements are taken together

TEST(SettledBatchTest, IsTakenWhenMinimumSizeIsReached) {
  const auto queue = make_queue({.capacity = 4});
  std::string taken;
  std::jthread consumer(
      [&] { taken = text_of(queue->dequeue_many(2, kNoStop, kNoDeadline, {.min_size = 4})); });
  wait_for_waiters(*queue, 1);
  for (int64_t i = 1; i <= 3; ++i) ASSERT_TRUE(queue->enqueue(scalar(i), kNoStop).ok());
  EXPECT_EQ(queue->size(), 3);
  EXPECT_EQ(queue->waiters().at(0).completed, 0);
  ASSERT_TRUE(queue->enqueue(scalar(4), kNoStop).ok());
  consumer.join();
  EXPECT_EQ(taken, "1 2");
}

TEST(SettledBatchTest, IsTakenFromClosedQueue) {
  const auto queue = make_queue({.capacity = 4});
  for (int64_t i = 1; i <= 3; ++i) ASSERT_TRUE(queue->enqueue(scalar(i), kNoStop).ok());
  const BatchOptions when_full{.min_size = 4};
  EXPECT_EQ(queue->dequeue_many(2, kNoStop, kNoWait, when_full).status().code(),
            StatusCode::kTimedOut);
  queue->start_close(false);
  EXPECT_EQ(text_of(queue->dequeue_many(2, kNoStop, kNoDeadline, when_full)), "1 2");
  EXPECT_EQ(queue->dequeue_many(2, kNoStop, kNoDeadline, when_full).status().code(),
            StatusCode::kClosed);
  EXPECT_EQ(text_of(queue->dequeue_up_to(2, kNoStop, kNoDeadline, when_full)), "3");
}

TEST(SettledBatchTest, IsTakenWhenNoMoreElementsAreExpected) {
  const auto queue = make_queue(
      {.type = QueueType::kRandomShuffle, .capacity = 9, .min_after_dequeue = 1, .seed = 7});
  ASSERT_TRUE(queue->enqueue_many(batch({1, 2}), kNoStop).ok());
  std::atomic<bool> is_settled = true;
  std::atomic<int64_t> calls = 0;
  const BatchOptions options{.min_size = 9, .is_settled = [&] {
                               ++calls;
                               return is_settled.load();
                             }};
  // Settled, but one of the two elements must remain.
  EXPECT_EQ(queue->dequeue_many(2, kNoStop, kNoWait, options).status().code(),
            StatusCode::kTimedOut);
  is_settled = false;
  ASSERT_TRUE(queue->enqueue(scalar(3), kNoStop).ok());
  calls = 0;
  Result<Tuple> taken = Tuple();
  std::jthread consumer([&] { taken = queue->dequeue_many(2, kNoStop, kNoDeadline, options); });
  // When it began, and later without a change of the queue.
  EXPECT_TRUE(test::eventually([&] { return calls >= 3; }));
  EXPECT_EQ(queue->size(), 3);
  is_settled = true;
  consumer.join();
  EXPECT_TRUE(taken.ok());
  EXPECT_EQ(queue->size(), 1);
}

TEST(SettledBatchTest, IsTakenWhenProducerReportsThatItWaits) {
  const auto queue = make_queue({.capacity = 9});
  ASSERT_TRUE(queue->enqueue_many(batch({1, 2, 3}), kNoStop).ok());
  std::atomic<bool> is_settled = false;
  const BatchOptions options{.min_size = 9, .is_settled = [&] { return is_settled.load(); }};
  std::string taken;
  std::jthread consumer(
      [&] { taken = text_of(queue->dequeue_many(2, kNoStop, kNoDeadline, options)); });
  wait_for_waiters(*queue, 1);
  queue->check_settled();
  EXPECT_EQ(queue->size(), 3);
  is_settled = true;
  queue->check_settled();
  EXPECT_EQ(queue->size(), 1);
  consumer.join();
  EXPECT_EQ(taken, "1 2");
}

TEST(SettledBatchTest, CanExceedCapacity) {
  const auto queue = make_queue(
      {.type = QueueType::kRandomShuffle, .capacity = 3, .min_after_dequeue = 1, .seed = 7});
  Result<Tuple> taken = Tuple();
  std::jthread consumer(
      [&] { taken = queue->dequeue_many(4, kNoStop, kNoDeadline, {.min_size = 3}); });
  wait_for_waiters(*queue, 1);
  EXPECT_TRUE(queue->enqueue_many(batch({1, 2, 3, 4, 5}), kNoStop).ok());
  consumer.join();
  EXPECT_TRUE(taken.ok());
  EXPECT_EQ(queue->size(), 1);
}

TEST(SettledBatchTest, RejectsMinimumSizeAboveCapacity) {
  const auto queue = make_queue({.capacity = 4});
  EXPECT_EQ(queue->dequeue_many(1, kNoStop, kNoDeadline, {.min_size = 5}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stoker::queue
