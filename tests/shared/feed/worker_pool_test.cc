#include "shared/feed/worker_pool.h"

#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/feed/sample_reader.h"
#include "tests/shared/feed/fake_dataset.h"
#include "tests/support/eventually.h"
#include "tests/support/machine_slowness.h"

namespace stoker::feed {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using ::testing::HasSubstr;
const auto kTestTimeout = test::scaled(60s);  // reached only if the test fails

class WorkerPoolTest : public ::testing::Test {
 protected:
  void open(uint64_t samples, uint64_t batch, const ring::RingOptions& options,
            config::ShuffleMode shuffle = config::ShuffleMode::kFull) {
    dataset_.emplace(samples);
    plan_.emplace(
        data::order::PlanOptions{.size = samples, .batch = batch, .seed = 5, .shuffle = shuffle});
    auto ring = ring::ShmRing::create(ring::BatchLayout(dataset_->spec(), batch), options);
    ASSERT_TRUE(ring.ok()) << ring.status().to_string();
    ring_ = *std::move(ring);
  }
  void start(int threads, const ReadAheadOptions& ahead = {}) {
    pool_.emplace(*ring_, *ring_->add_producer("pool"), *dataset_, *plan_);
    pool_->start(threads, coordinator_, {}, ahead);
  }
  // Checks row `row` of a batch against the planned sample.
  void expect_row(const ring::ReadyBatch& batch, uint64_t row,
                  const data::order::PlannedSample& planned) {
    int64_t values[3];
    std::memcpy(values, ring_->layout().tensor_bytes(batch.slot, 0).data() + row * sizeof(values),
                sizeof(values));
    EXPECT_EQ(values[0], static_cast<int64_t>(planned.sample))
        << "ticket " << batch.ticket << " row " << row;
    EXPECT_EQ(values[1], static_cast<int64_t>(planned.epoch));
    EXPECT_EQ(values[2], 5);
    int64_t label = -1;
    std::memcpy(&label, ring_->layout().tensor_bytes(batch.slot, 1).data() + row * sizeof(label),
                sizeof(label));
    EXPECT_EQ(label, static_cast<int64_t>(planned.sample % 10));
  }
  void expect_planned_batches(uint64_t from, uint64_t to) {
    for (uint64_t ticket = from; ticket < to; ++ticket) {
      const auto batch = ring_->pop(kTestTimeout);
      ASSERT_TRUE(batch.ok()) << batch.status().to_string();
      ASSERT_EQ(batch->ticket, ticket);
      for (uint64_t row = 0; row < plan_->options().batch; ++row)
        expect_row(*batch, row, plan_->at(ticket, row));
      ring_->release(ticket);
    }
  }
  // Stops in the middle of ticket 0 while a worker is blocked in its gated sample.
  void expect_first_batch_given_back() {
    dataset_->wait_until_gated();
    coordinator_.request_stop();
    dataset_->open_gate();
    EXPECT_TRUE(coordinator_.join(kTestTimeout).ok());
    pool_.reset();
    const auto claim = ring_->claim(*ring_->add_producer("heir"), 0ns);
    ASSERT_TRUE(claim.ok());
    EXPECT_EQ(claim->ticket, 0u);
  }

  std::optional<FakeDataset> dataset_;
  std::optional<data::order::SamplePlan> plan_;
  std::unique_ptr<ring::ShmRing> ring_;
  std::optional<WorkerPool> pool_;
  Coordinator coordinator_;  // destroyed first: joins the threads
};

TEST_F(WorkerPoolTest, FillsPlannedBatchesWithOneThread) {
  open(50, 7, {.slots = 4, .first_ticket = 3});
  start(1);
  expect_planned_batches(3, 40);
}

TEST_F(WorkerPoolTest, FillsSameBatchesWithAnyNumberOfThreads) {
  open(50, 7, {.slots = 4});
  start(5);
  expect_planned_batches(0, 300);
}

TEST_F(WorkerPoolTest, SharesTicketsBetweenTwoPools) {
  open(1000, 16, {.slots = 3});
  start(2);
  WorkerPool other(*ring_, *ring_->add_producer("other"), *dataset_, *plan_);
  other.start(2, coordinator_);
  expect_planned_batches(0, 300);
  ring_->close();
  EXPECT_TRUE(coordinator_.join(kTestTimeout).ok());
}

TEST_F(WorkerPoolTest, SupportsMoreThreadsThanSamplesPerBatch) {
  open(10, 1, {.slots = 2});
  start(6);
  expect_planned_batches(0, 100);
}

TEST_F(WorkerPoolTest, PreservesOrderWhenActiveWorkersChange) {
  open(50, 7, {.slots = 4});
  ring_->set_active_workers(1);
  dataset_->gate(plan_->at(0, 0).sample);
  start(3);
  EXPECT_EQ(ring_->pop(100ms).status().code(), StatusCode::kTimedOut);
  EXPECT_EQ(ring_->counters().ready, 0u) << "the one that works is held up, and no other reads";
  ring_->set_active_workers(3);
  ASSERT_TRUE(eventually([&] { return ring_->counters().ready >= 1; }));
  dataset_->open_gate();
  expect_planned_batches(0, 100);
  ring_->set_active_workers(1);
  expect_planned_batches(100, 200);
}

TEST_F(WorkerPoolTest, NumbersThreadsAcrossPoolsInTurn) {
  open(50, 7, {.slots = 4, .end_ticket = 100});
  ring_->set_active_workers(1);
  pool_.emplace(*ring_, *ring_->add_producer("second"), *dataset_, *plan_);
  pool_->start(2, coordinator_, {.number = 1, .of = 2});
  EXPECT_EQ(ring_->pop(100ms).status().code(), StatusCode::kTimedOut) << "numbers 1 and 3 work";
  WorkerPool first(*ring_, *ring_->add_producer("first"), *dataset_, *plan_);
  first.start(2, coordinator_, {.number = 0, .of = 2});
  expect_planned_batches(0, 100);
  ring_->set_active_workers(0);
  EXPECT_TRUE(coordinator_.join(kTestTimeout).ok());
}

TEST_F(WorkerPoolTest, ContinuesWithOtherSamplesWhileOneIsSlow) {
  open(100, 4, {.slots = 4}, config::ShuffleMode::kNone);
  dataset_->gate(1);  // in ticket 0
  start(2);
  ASSERT_TRUE(eventually([&] { return ring_->counters().ready >= 1; }))
      << "ticket 1 is read meanwhile";
  EXPECT_EQ(ring_->pop(0ns).status().code(), StatusCode::kTimedOut);
  dataset_->open_gate();
  expect_planned_batches(0, 10);
}

TEST_F(WorkerPoolTest, ReportsSampleErrorAndUsesReplacement) {
  open(30, 5, {.slots = 8, .end_ticket = 6});
  dataset_->make_bad({11});
  start(3);
  int replaced = 0;
  for (uint64_t ticket = 0; ticket < 6; ++ticket) {
    const auto batch = ring_->pop(kTestTimeout);
    ASSERT_TRUE(batch.ok());
    for (uint64_t row = 0; row < 5; ++row) {
      const bool bad = plan_->at(ticket, row).sample == 11;
      replaced += bad;
      expect_row(*batch, row, bad ? plan_->replacement(ticket, row, 1) : plan_->at(ticket, row));
    }
    ring_->release(ticket);
  }
  EXPECT_EQ(replaced, 1);
  const auto reports = ring_->drain_sample_errors();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].sample, 11u);
  EXPECT_EQ(reports[0].code, StatusCode::kCorrupt);
  // Without the file name, to save space in the report.
  EXPECT_EQ(reports[0].reason, "sample 11 is bad");
  EXPECT_TRUE(coordinator_.join(kTestTimeout).ok());
}

TEST_F(WorkerPoolTest, ReplacesReplacementThatFailsToo) {
  open(30, 5, {.slots = 8, .end_ticket = 6}, config::ShuffleMode::kNone);
  dataset_->make_bad({11, 12, 13});
  start(2);
  for (uint64_t ticket = 0; ticket < 6; ++ticket) {
    const auto batch = ring_->pop(kTestTimeout);
    ASSERT_TRUE(batch.ok());
    if (ticket == 2) expect_row(*batch, 1, {.sample = 14, .epoch = 0});
    ring_->release(ticket);
  }
  EXPECT_EQ(ring_->drain_sample_errors().size(), 3u + 2u + 1u);
}

TEST_F(WorkerPoolTest, FailsRunWithReasonWhenNoSampleIsReadable) {
  open(64, 4, {.slots = 2});
  std::set<uint64_t> all;
  for (uint64_t sample = 0; sample < 64; ++sample) all.insert(sample);
  dataset_->make_bad(all);
  start(2);
  const Status status = coordinator_.join(kTestTimeout);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("is bad"));
}

TEST_F(WorkerPoolTest, StopsThreadsOnEndOfData) {
  open(30, 5, {.slots = 3, .end_ticket = 9});
  start(4);
  expect_planned_batches(0, 9);
  EXPECT_TRUE(coordinator_.join(kTestTimeout).ok());
  EXPECT_FALSE(coordinator_.should_stop());
}

TEST_F(WorkerPoolTest, StopsThreadsWhenRingIsClosed) {
  open(30, 5, {.slots = 3});
  start(4);
  expect_planned_batches(0, 2);
  ring_->close();
  EXPECT_TRUE(coordinator_.join(kTestTimeout).ok());
  EXPECT_FALSE(coordinator_.should_stop());
}

TEST_F(WorkerPoolTest, StopsThreadsWaitingForSlot) {
  open(30, 5, {.slots = 1});
  start(3);
  ASSERT_TRUE(eventually([&] { return ring_->counters().ready == 1; }));
  coordinator_.request_stop();
  EXPECT_TRUE(coordinator_.join(kTestTimeout).ok());
}

TEST_F(WorkerPoolTest, RequeuesUnfinishedBatchesOnStop) {
  open(1000, 4 * SampleReader::kMaxRows, {.slots = 4}, config::ShuffleMode::kNone);
  dataset_->gate(1);
  start(1);
  expect_first_batch_given_back();
}

// ---- Groups of rows

TEST_F(WorkerPoolTest, ReadsFastSamplesInGroupsAsPlanned) {
  open(500, 3 * SampleReader::kMaxRows + 5, {.slots = 4});
  start(3);
  uint64_t ticket = 0;
  for (; dataset_->max_together() < 2 && ticket < 100'000; ticket += 10)
    ASSERT_NO_FATAL_FAILURE(expect_planned_batches(ticket, ticket + 10));
  EXPECT_GE(dataset_->max_together(), 2u);
  expect_planned_batches(ticket, ticket + 50);
  EXPECT_LE(dataset_->max_together(), SampleReader::kMaxRows);
}

TEST_F(WorkerPoolTest, ReadsSlowSamplesOneByOne) {
  open(500, 64, {.slots = 4});
  dataset_->read_for(2 * SampleReader::kGroupTime);
  start(2);
  expect_planned_batches(0, 20);
  EXPECT_EQ(dataset_->max_together(), 1u);
}

TEST_F(WorkerPoolTest, UsesReplacementsWithinGroupedReads) {
  constexpr uint64_t kSamples = 400, kBatch = 2 * SampleReader::kMaxRows;
  open(kSamples, kBatch, {.slots = 4}, config::ShuffleMode::kNone);
  const std::set<uint64_t> bad{0, 31, 32, 33, 70, 398, 399};
  dataset_->make_bad(bad);
  start(2);
  uint64_t reports = 0;
  uint64_t ticket = 0;
  for (; ticket < 50 || (dataset_->max_together() < 2 && ticket < 100'000); ++ticket) {
    const auto batch = ring_->pop(kTestTimeout);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    for (uint64_t row = 0; row < kBatch; ++row) {
      data::order::PlannedSample planned = plan_->at(ticket, row);
      for (uint64_t attempt = 1; bad.contains(planned.sample); ++attempt) {
        planned = plan_->replacement(ticket, row, attempt);
        ++reports;
      }
      ASSERT_NO_FATAL_FAILURE(expect_row(*batch, row, planned));
    }
    ring_->release(ticket);
    for (const ring::SampleError& report : ring_->drain_sample_errors()) {
      EXPECT_TRUE(bad.contains(report.sample));
      EXPECT_THAT(report.reason, HasSubstr("sample " + std::to_string(report.sample) + " is bad"));
    }
  }
  EXPECT_GE(ring_->counters().sample_errors, reports);
  EXPECT_GE(dataset_->max_together(), 2u);
}

// ---- Read-ahead

constexpr ReadAheadOptions always(int reads, uint64_t memory_bytes = 1 << 20) {
  return {.max_reads = reads, .adapts = false, .memory_bytes = memory_bytes};
}

TEST_F(WorkerPoolTest, MaintainsConfiguredNumberOfReadsInFlight) {
  open(1000, 32, {.slots = 8});
  dataset_->answer_together(24);
  start(1, always(24));
  expect_planned_batches(0, 40);
  EXPECT_EQ(dataset_->max_reads_in_flight(), 24);
  EXPECT_GE(dataset_->taken_from_memory(), 40u * 32);
}

TEST_F(WorkerPoolTest, ReadsAheadAcrossSmallBatches) {
  open(1000, 4, {.slots = 16});
  dataset_->answer_together(24);
  start(2, always(24));
  expect_planned_batches(0, 100);
  EXPECT_EQ(dataset_->max_reads_in_flight(), 24);
}

TEST_F(WorkerPoolTest, SharesTicketsBetweenTwoPoolsWithReadAhead) {
  open(1000, 16, {.slots = 6});
  start(2, always(7));
  WorkerPool other(*ring_, *ring_->add_producer("other"), *dataset_, *plan_);
  other.start(1, coordinator_, {.number = 1, .of = 2}, always(5));
  expect_planned_batches(0, 300);
  ring_->close();
  EXPECT_TRUE(coordinator_.join(kTestTimeout).ok());
}

TEST_F(WorkerPoolTest, LimitsReadAheadToMemoryBudget) {
  open(1000, 16, {.slots = 6});
  start(1, always(8, 35));  // the budget is three samples of 10 bytes
  expect_planned_batches(0, 100);
  EXPECT_LE(dataset_->max_reads_in_flight(), 3);
  EXPECT_GE(dataset_->taken_from_memory(), 100u * 16);
}

TEST_F(WorkerPoolTest, ReadsSamplesLargerThanReadAheadBudget) {
  open(1000, 16, {.slots = 6});
  start(2, always(8, 9));
  expect_planned_batches(0, 100);
  EXPECT_EQ(dataset_->prefetched(), 0u);
}

TEST_F(WorkerPoolTest, ReportsSampleErrorOnceWithReadAhead) {
  open(30, 5, {.slots = 8, .end_ticket = 6});
  dataset_->make_bad({11});
  start(3, always(6));
  for (uint64_t ticket = 0; ticket < 6; ++ticket) {
    const auto batch = ring_->pop(kTestTimeout);
    ASSERT_TRUE(batch.ok());
    for (uint64_t row = 0; row < 5; ++row) {
      const bool bad = plan_->at(ticket, row).sample == 11;
      expect_row(*batch, row, bad ? plan_->replacement(ticket, row, 1) : plan_->at(ticket, row));
    }
    ring_->release(ticket);
  }
  EXPECT_EQ(ring_->drain_sample_errors().size(), 1u);
  EXPECT_TRUE(coordinator_.join(kTestTimeout).ok());
  EXPECT_FALSE(coordinator_.should_stop());
}

TEST_F(WorkerPoolTest, StopsReadAheadThreadsWhenRingIsClosed) {
  open(30, 5, {.slots = 3});
  start(2, always(9));
  expect_planned_batches(0, 2);
  ring_->close();
  EXPECT_TRUE(coordinator_.join(kTestTimeout).ok());
  EXPECT_FALSE(coordinator_.should_stop());
}

TEST_F(WorkerPoolTest, RequeuesUnfinishedBatchesWithReadAhead) {
  open(100, 4, {.slots = 4}, config::ShuffleMode::kNone);
  dataset_->gate(1);
  // A single read: samples arrive in order, with more of ticket 0 after the gated one.
  start(1, always(1));
  expect_first_batch_given_back();
}

TEST_F(WorkerPoolTest, EnablesReadAheadWhenReadsWaitForDisk) {
  open(1000, 16, {.slots = 6});
  dataset_->answer_after(4 * ReadAheadTuner::kMinWait);
  start(1, {.max_reads = 8, .adapts = true, .memory_bytes = 1 << 20});
  uint64_t ticket = 0;
  for (; dataset_->max_reads_in_flight() < 4 && ticket < 100'000; ++ticket)
    ASSERT_NO_FATAL_FAILURE(expect_planned_batches(ticket, ticket + 1));
  EXPECT_GE(dataset_->max_reads_in_flight(), 4);
  dataset_->answer_after(0us);    // in the second epoch all samples are in memory
  constexpr uint64_t kMany = 50;  // more than the batches that may already be read ahead
  for (bool all_prefetched = true; all_prefetched && ticket < 200'000; ticket += kMany) {
    const uint64_t before = dataset_->prefetched();
    ASSERT_NO_FATAL_FAILURE(expect_planned_batches(ticket, ticket + kMany));
    all_prefetched = dataset_->prefetched() - before > kMany * 16 / 2;
  }
  EXPECT_LT(ticket, 200'000u) << "quick reads are still read ahead";
}

TEST_F(WorkerPoolTest, DoesNotReadAheadWhenReadsAreFast) {
  open(1000, 16, {.slots = 6});
  start(1, {.max_reads = 8, .adapts = true, .memory_bytes = 1 << 20});
  expect_planned_batches(0, 1000);
  EXPECT_LE(dataset_->max_reads_in_flight(), 1);
  EXPECT_LT(dataset_->prefetched(), 1000u);
}

// ---- Cache budget

TEST(SampleCacheBudgetTest, IsEighthOfMemoryLimitUpToMaximum) {
  config::FeedConfig feed;
  EXPECT_EQ(sample_cache_budget(feed), kMaxCachedBytes);
  feed.worker_memory_limit_mib = 80;
  EXPECT_EQ(sample_cache_budget(feed), uint64_t{10} << 20);
  feed.worker_memory_limit_mib = 1 << 20;
  EXPECT_EQ(sample_cache_budget(feed), kMaxCachedBytes);
  feed.worker_memory_limit_mib.reset();  // unlimited
  EXPECT_EQ(sample_cache_budget(feed), kMaxCachedBytes);
}

TEST(SampleCacheBudgetTest, IsUsedInProcessOnlyByWorkerThreads) {
  config::FeedConfig feed;
  EXPECT_EQ(in_process_cache_budget(feed), 0u);
  feed.num_processes = 0;
  EXPECT_EQ(in_process_cache_budget(feed), kMaxCachedBytes);
  feed.producers = config::ProducerMode::kExternal;
  EXPECT_EQ(in_process_cache_budget(feed), 0u);
}

}  // namespace
}  // namespace stoker::feed
