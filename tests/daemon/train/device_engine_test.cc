#include "daemon/train/device_engine.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include "shared/data/order/bucket_plan.h"
#include "tests/daemon/train/fake_queue.h"
#include "tests/shared/data/sequence_test_data.h"

namespace stoker::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Batches with a single value, the ticket, in a ring of `slots` slots.
class DeviceEngineTest : public ::testing::Test {
 protected:
  void open(uint64_t slots, bool captures = true) {
    slots_ = slots;
    memory_.resize(slots);
    auto queue = std::make_unique<FakeQueue>(log_, layout_.slot_bytes());
    queue_ = queue.get();
    engine_ = std::make_unique<DeviceEngine>(
        std::move(queue), std::vector<std::unique_ptr<PinnedMemory>>(),
        DeviceEngineOptions{.slots = slots, .captures = captures},
        StepEngine::Calls{.prepare =
                              [this](task::Batch batch, uint64_t ticket, MicroBatchInfo) {
                                return on_prepare ? on_prepare(std::move(batch), ticket) : batch;
                              },
                          .work =
                              [this](const task::Batch& batch, MicroBatchInfo micro_batch) {
                                if (on_work) on_work();
                                seen_.push_back(batch.front().item<float>());
                                last_.push_back(micro_batch.is_last);
                              },
                          .release = [this](uint64_t ticket) { released_.push_back(ticket); }});
  }
  void run(MicroBatchInfo micro_batch = {}) {
    const uint64_t ticket = next_++;
    auto& slot = memory_[ticket % slots_];
    slot.resize(layout_.slot_bytes());
    const auto number = static_cast<float>(ticket);
    std::memcpy(slot.data(), &number, sizeof number);
    engine_->run({.ticket = ticket, .layout = layout_, .tensors = {layout_.tensor_bytes(slot, 0)}},
                 micro_batch);
  }

  const ring::BatchLayout layout_{{{"input", DType::kF32, {}}}, 1};
  std::shared_ptr<FakeQueue::Log> log_ = std::make_shared<FakeQueue::Log>();
  uint64_t slots_ = 0, next_ = 0;
  std::vector<std::vector<std::byte>> memory_;
  FakeQueue* queue_ = nullptr;
  std::function<task::Batch(task::Batch, uint64_t)> on_prepare;
  std::function<void()> on_work;
  std::vector<float> seen_;
  std::vector<bool> last_;
  std::vector<uint64_t> released_;
  std::unique_ptr<DeviceEngine> engine_;
};

TEST_F(DeviceEngineTest, ProcessesBatchesInOrderWithTwoBuffers) {
  open(4);
  for (int i = 0; i < 8; ++i) run();
  EXPECT_THAT(seen_, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(log_->buffers, ElementsAre(0, 1, 0, 1, 0, 1, 0, 1));
}

TEST_F(DeviceEngineTest, ReplaysStepsAfterWarmUpAndCapture) {
  open(4);
  for (int i = 0; i < 10; ++i) run();
  EXPECT_EQ(log_->captures, 2);
  EXPECT_EQ(log_->replays, 10 - GraphSchedule::kWarmUpSteps);
}

TEST_F(DeviceEngineTest, PassesPreparedBatchToReplayedStep) {
  open(4);
  on_prepare = [](const task::Batch& batch, uint64_t ticket) {
    return task::Batch{batch.front() * 2 + static_cast<double>(ticket)};
  };
  for (int i = 0; i < 8; ++i) run();
  EXPECT_THAT(seen_, ElementsAre(0, 3, 6, 9, 12, 15, 18, 21));
  EXPECT_GT(log_->replays, 0);
}

// Bucketed sequences: batches of three lengths, each with its own graphs.
TEST(DeviceEngineShapesTest, ProcessesBatchesOfEachBucketLengthUnchanged) {
  const auto data = data::testing::SequenceTestData::of_sizes({4, 9, 0, 6});
  const std::vector<int64_t> lengths{1, 2};
  const data::order::SamplePlan plan(
      {.size = data.size(),
       .batch = 2,
       .maybe_buckets = std::make_shared<const data::order::LengthBuckets>(data, lengths)});
  const feed::BatchShapes shapes(data, plan);
  const auto log = std::make_shared<FakeQueue::Log>();
  const size_t slot_bytes = ring::BatchLayout(data.spec(), 2).slot_bytes();
  std::vector<at::Tensor> seen;
  DeviceEngine engine(
      std::make_unique<FakeQueue>(log, slot_bytes), {}, {.slots = 4},
      {.prepare =
           [](const task::Batch& batch, uint64_t, MicroBatchInfo) {
             return task::Batch{batch[0] + 1, batch[1]};  // the result of + has its own memory
           },
       .work = [&](const task::Batch& batch, MicroBatchInfo) { seen.push_back(batch[0].clone()); },
       .release = [](uint64_t) {}});
  std::vector<std::byte> slot(slot_bytes, std::byte{0xee});
  feed::BatchReceiver receiver(shapes, ring::BatchLayout(data.spec(), 2), 4);
  for (uint64_t ticket = 0; ticket < 60; ++ticket) {
    const ring::BatchLayout& layout = shapes.of(ticket);
    for (uint64_t row = 0; row < 2; ++row)
      ASSERT_TRUE(data.read(plan.at(ticket, row).sample, {},
                            std::vector{layout.row(slot, 0, row), layout.row(slot, 1, row)})
                      .ok());
    engine.run(receiver.receive({.ticket = ticket, .slot = slot}), {});
    const at::Tensor& batch = seen.back();
    ASSERT_EQ(batch.sizes(), (std::vector<int64_t>{2, layout.sample()[0].shape[0]}));
    for (int64_t row = 0; row < 2; ++row)
      ASSERT_EQ(batch[row][0].item<float>(),
                static_cast<float>(plan.at(ticket, static_cast<uint64_t>(row)).sample + 1));
  }
  EXPECT_EQ(log->captures, 6) << "three lengths in two buffers";
  EXPECT_GT(log->replays, 30);
}

// Images and numbers come from the slot; labels, tokens and lengths from the private copy, whatever
// is written to the slot meanwhile.
TEST(DeviceEngineCopyTest, CopiesEachTensorFromReceivedBatch) {
  const ring::BatchLayout layout({{"input", DType::kU8, {3}},
                                  {"weight", DType::kF32, {}},
                                  {"tokens", DType::kU8, {5}},
                                  {"length", DType::kI64, {}},
                                  {"target", DType::kF32, {2}},
                                  {"label", DType::kI64, {}}},
                                 3);
  const auto log = std::make_shared<FakeQueue::Log>();
  std::vector<at::Tensor> seen;
  DeviceEngine engine(
      std::make_unique<FakeQueue>(log, layout.slot_bytes()), {}, {.slots = 2},
      {.prepare = [](const task::Batch& batch, uint64_t, MicroBatchInfo) { return batch; },
       .work =
           [&](const task::Batch& batch, MicroBatchInfo) {
             for (const at::Tensor& tensor : batch) seen.push_back(tensor.clone());
           },
       .release = [](uint64_t) {}});
  feed::BatchReceiver receiver(layout, layout, 2);
  std::vector<std::byte> slot(layout.slot_bytes());
  for (uint64_t ticket = 0; ticket < 6; ++ticket) {
    for (size_t i = 0; i < slot.size(); ++i) slot[i] = static_cast<std::byte>(ticket * 31 + i);
    const std::vector<std::byte> published = slot;
    const feed::ReceivedBatch batch = receiver.receive({.ticket = ticket, .slot = slot});
    for (const size_t integers : {2, 3, 5})
      std::ranges::fill(layout.rows(slot, integers, 0, 3), std::byte{0xff});
    seen.clear();
    engine.run(batch, {});
    ASSERT_EQ(seen.size(), 6u);
    for (size_t i = 0; i < seen.size(); ++i) {
      const auto expected = layout.tensor_bytes(published, i);
      ASSERT_EQ(seen[i].nbytes(), expected.size());
      EXPECT_EQ(std::memcmp(seen[i].data_ptr(), expected.data(), expected.size()), 0) << i;
    }
  }
}

TEST_F(DeviceEngineTest, CapturesNothingWhenDisabled) {
  open(4, false);
  for (int i = 0; i < 10; ++i) run();
  EXPECT_EQ(log_->captures, 0);
  EXPECT_EQ(seen_.size(), 10u);
}

TEST_F(DeviceEngineTest, PreservesMicroBatchPositionWithinStep) {
  open(4);
  for (int step = 0; step < 8; ++step) {
    run({true, false});
    run({false, true});
  }
  for (size_t i = 0; i < last_.size(); ++i) EXPECT_EQ(last_[i], i % 2 == 1) << i;
  EXPECT_EQ(log_->captures, 2) << "first parts come in one buffer, last ones in the other";
}

TEST_F(DeviceEngineTest, ReleasesSlotsInOrderAfterCopyCompletes) {
  open(4);
  log_->copies_are_slow = true;
  run();
  run();
  EXPECT_TRUE(engine_->poll());
  EXPECT_THAT(released_, IsEmpty());
  log_->finished = {1};
  engine_->poll();
  EXPECT_THAT(released_, IsEmpty()) << "in the order of the tickets";
  log_->finished = {0, 1};
  EXPECT_FALSE(engine_->poll());
  EXPECT_THAT(released_, ElementsAre(0, 1));
}

TEST_F(DeviceEngineTest, LimitsPendingCopiesToTwo) {
  open(8);
  log_->copies_are_slow = true;
  run();
  run();
  EXPECT_EQ(log_->waits, 0);
  run();
  EXPECT_EQ(log_->waits, 1);
  EXPECT_THAT(released_, ElementsAre(0));
}

TEST_F(DeviceEngineTest, LeavesOneSlotForWorkers) {
  open(2);
  log_->copies_are_slow = true;
  run();
  run();
  EXPECT_THAT(released_, ElementsAre(0));
}

TEST_F(DeviceEngineTest, RunsAllStepsEagerlyAfterCaptureFails) {
  open(4);
  queue_->before_capture = [] { TORCH_CHECK(false, "operation not permitted when capturing"); };
  for (int i = 0; i < 10; ++i) run();
  EXPECT_EQ(log_->captures, 1);
  EXPECT_EQ(log_->replays, 0);
  EXPECT_THAT(seen_, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(DeviceEngineTest, RunsStepEagerlyWhenMemoryRunsOutDuringCapture) {
  open(4);
  queue_->before_capture = [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory"); };
  for (int i = 0; i < 6; ++i) run();
  EXPECT_EQ(log_->captures, 1);
  EXPECT_EQ(log_->releases, 2) << "before the capture and after it failed";
  EXPECT_THAT(seen_, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(DeviceEngineTest, ReportsOutOfMemoryIfStepDoesNotFitWithoutCaptureEither) {
  open(4);
  for (int i = 0; i < GraphSchedule::kWarmUpSteps; ++i) run();
  queue_->before_capture = [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory"); };
  on_work = [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory"); };
  EXPECT_THROW(run(), c10::OutOfMemoryError);
}

// Eager work, such as an instrumented step, cannot use the graphs' memory.
TEST_F(DeviceEngineTest, DropsGraphsForEagerStepWithoutMemoryAndCapturesAgain) {
  open(4);
  log_->graph_bytes = 100;
  for (int i = 0; i < 6; ++i) run();
  ASSERT_EQ(log_->captures, 2);
  log_->free_bytes = 199;
  run({.is_instrumented = true});
  EXPECT_EQ(log_->captures, 2);
  const int replays = log_->replays;
  for (int i = 0; i < 4; ++i) run();
  EXPECT_EQ(log_->captures, 4);
  EXPECT_EQ(log_->replays, replays + 4);
  EXPECT_THAT(seen_, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
}

TEST_F(DeviceEngineTest, KeepsGraphsIfEagerStepFits) {
  open(4);
  log_->graph_bytes = 100;
  log_->use.allocated_bytes = 50;
  log_->use.reserved_bytes = 80;
  for (int i = 0; i < 6; ++i) run();
  log_->free_bytes = 170;  // and 30 are cached
  run({.is_instrumented = true});
  for (int i = 0; i < 4; ++i) run();
  EXPECT_EQ(log_->captures, 2);
}

TEST_F(DeviceEngineTest, StopsCapturingIfGraphsAreDroppedAfterFewReplays) {
  open(4);
  log_->graph_bytes = 100;
  for (int i = 0; i < 20; ++i) run({.is_instrumented = i % 5 == 4});
  EXPECT_EQ(log_->captures, 3) << "once before the first drop, twice before the second";
  std::vector<float> tickets(20);
  std::iota(tickets.begin(), tickets.end(), 0.0F);
  EXPECT_EQ(seen_, tickets);
}

TEST_F(DeviceEngineTest, PropagatesExceptionOfStep) {
  open(4);
  on_work = [] { TORCH_CHECK(false, "CUDA error: an illegal memory access was encountered"); };
  EXPECT_THROW(run(), c10::Error);
}

TEST_F(DeviceEngineTest, DeliversReadValuesInOrderAsOfRequestTime) {
  open(4);
  log_->reads_are_slow = true;
  const at::Tensor scalar = at::full({}, 1.5);
  std::vector<double> given;
  const auto take = [&](std::span<const double> values) {
    given.insert(given.end(), values.begin(), values.end());
  };
  engine_->read({scalar, at::full({}, 7, at::kInt)}, take);
  scalar.fill_(2.5);
  engine_->read({scalar}, take);
  scalar.fill_(9);
  EXPECT_TRUE(engine_->poll());
  EXPECT_THAT(given, IsEmpty());
  engine_->synchronize();
  EXPECT_THAT(given, ElementsAre(1.5, 7, 2.5));
}

TEST_F(DeviceEngineTest, WaitsForOldestReadWhenReadRingIsFull) {
  open(4);
  log_->reads_are_slow = true;
  std::vector<double> given;
  for (size_t i = 0; i < 2 * cuda::DeviceQueue::kReads; ++i)
    engine_->read({at::full({}, static_cast<double>(i))},
                  [&](auto values) { given.push_back(values[0]); });
  EXPECT_EQ(given.size(), cuda::DeviceQueue::kReads);
  engine_->synchronize();
  for (size_t i = 0; i < given.size(); ++i) EXPECT_EQ(given[i], static_cast<double>(i));
}

}  // namespace
}  // namespace stoker::train
