#include "shared/ring/shm_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <set>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/ring/mapped_ring.h"
#include "tests/shared/ring/ring_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/own_cgroup.h"

namespace stoker::ring {
namespace {

using ::testing::HasSubstr;

class ShmRingTest : public ::testing::Test {
 protected:
  void open(const RingOptions& options) {
    ring_ = make_ring(options);
    ASSERT_NE(ring_, nullptr);
    producer_ = add("reader");
  }
  ProducerId add(const char* name) {
    const auto producer = ring_->add_producer(name);
    EXPECT_TRUE(producer.ok()) << producer.status().to_string();
    return producer.ok() ? *producer : ProducerId{};
  }
  Claim claim(ProducerId producer) {
    const auto claim = ring_->claim(producer, kPollOnce);
    EXPECT_TRUE(claim.ok()) << claim.status().to_string();
    return claim.ok() ? *claim : Claim{.ticket = ~0ull, .slot = {}};
  }
  void produce(ProducerId producer) {
    const Claim held = claim(producer);
    fill(held.slot, held.ticket);
    EXPECT_TRUE(ring_->publish(producer, held));
  }
  void expect_next(uint64_t ticket) {
    const auto batch = ring_->pop(kPollOnce);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    EXPECT_EQ(batch->ticket, ticket);
    EXPECT_TRUE(holds(batch->slot, ticket));
    ring_->release(ticket);
  }

  std::unique_ptr<ShmRing> ring_;
  ProducerId producer_;
};

TEST_F(ShmRingTest, DeliversBatchesInTicketOrder) {
  open({.slots = 4});
  const Claim first = claim(producer_), second = claim(producer_), third = claim(producer_);
  for (const Claim* held : {&third, &first, &second}) {
    fill(held->slot, held->ticket);
    EXPECT_EQ(ring_->publish(producer_, *held), true);
    if (held == &third) {
      EXPECT_EQ(ring_->pop(kPollOnce).status().code(), StatusCode::kTimedOut);
    }
  }
  for (const uint64_t ticket : {0, 1, 2}) expect_next(ticket);
}

TEST_F(ShmRingTest, TimesOutClaimWhenFullUntilRelease) {
  open({.slots = 2});
  produce(producer_);
  produce(producer_);
  EXPECT_EQ(ring_->claim(producer_, 1ms).status().code(), StatusCode::kTimedOut);
  const auto batch = ring_->pop(kPollOnce);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(ring_->claim(producer_, kPollOnce).status().code(), StatusCode::kTimedOut)
      << "still in use";
  ring_->release(batch->ticket);
  EXPECT_EQ(claim(producer_).ticket, 2u);
}

TEST_F(ShmRingTest, WorksWithOneSlot) {
  open({.slots = 1});
  for (uint64_t ticket = 0; ticket < 5; ++ticket) {
    produce(producer_);
    expect_next(ticket);
  }
}

TEST_F(ShmRingTest, PreservesHeldBatchWhileLaterOnesAreReleased) {
  open({.slots = 3});
  for (int i = 0; i < 3; ++i) produce(producer_);
  const auto held = ring_->pop(kPollOnce);
  ASSERT_TRUE(held.ok());
  expect_next(1);
  expect_next(2);
  // Slots for tickets 4 and 5 are free; ticket 3 shares the slot of the held ticket 0.
  EXPECT_EQ(claim(producer_).ticket, 4u);
  EXPECT_EQ(claim(producer_).ticket, 5u);
  EXPECT_EQ(ring_->claim(producer_, kPollOnce).status().code(), StatusCode::kTimedOut);
  EXPECT_TRUE(holds(held->slot, 0));
  ring_->release(0);
  EXPECT_EQ(claim(producer_).ticket, 3u);
}

TEST_F(ShmRingTest, IgnoresSecondRelease) {
  open({.slots = 2});
  produce(producer_);
  expect_next(0);
  ring_->release(0);
  ring_->release(7);
  produce(producer_);
  produce(producer_);
  expect_next(1);
  expect_next(2);
}

TEST_F(ShmRingTest, StartsAtFirstTicketAndStopsAtEndTicket) {
  constexpr uint64_t kFirst = 1234567890123;
  open({.slots = 4, .first_ticket = kFirst, .end_ticket = kFirst + 6});
  for (uint64_t ticket = kFirst; ticket < kFirst + 6; ++ticket) {
    produce(producer_);
    expect_next(ticket);
  }
  EXPECT_EQ(ring_->claim(producer_, kTestTimeout).status().code(), StatusCode::kClosed);
  EXPECT_EQ(ring_->pop(kTestTimeout).status().code(), StatusCode::kClosed);
}

TEST_F(ShmRingTest, SupportsTurnCounterWraparound) {
  // With 3 slots the turn reaches 2^32 during the test.
  const uint64_t first = (uint64_t{1} << 32) * 3 - 2;
  open({.slots = 3, .first_ticket = first});
  for (uint64_t ticket = first; ticket < first + 10; ++ticket) {
    produce(producer_);
    expect_next(ticket);
  }
}

TEST_F(ShmRingTest, ReportsEndOfDataOnlyAfterLastPublish) {
  open({.slots = 4, .end_ticket = 2});
  const ProducerId other = add("other");
  const Claim held = claim(other);
  produce(producer_);
  EXPECT_EQ(ring_->claim(producer_, kPollOnce).status().code(), StatusCode::kTimedOut)
      << "the other may die and its ticket come back";
  EXPECT_EQ(ring_->requeue(other), 1u);
  EXPECT_EQ(claim(producer_).ticket, held.ticket);
  EXPECT_TRUE(ring_->publish(producer_, held));
  EXPECT_EQ(ring_->claim(producer_, kPollOnce).status().code(), StatusCode::kClosed);
}

TEST_F(ShmRingTest, ReportsEndOfDataImmediatelyWithEmptyRange) {
  open({.slots = 2, .first_ticket = 5, .end_ticket = 5});
  EXPECT_EQ(ring_->claim(producer_, kTestTimeout).status().code(), StatusCode::kClosed);
  EXPECT_EQ(ring_->pop(kTestTimeout).status().code(), StatusCode::kClosed);
}

TEST_F(ShmRingTest, EndsAtTicketThatWasNotKnownAtFirst) {
  open({.slots = 4});
  EXPECT_EQ(ring_->first_unpublished(), 0u);
  produce(producer_);
  produce(producer_);
  EXPECT_EQ(ring_->first_unpublished(), 2u);
  ASSERT_TRUE(ring_->end_at(2).ok());
  EXPECT_TRUE(ring_->has_ended());
  expect_next(0);
  expect_next(1);
  EXPECT_EQ(ring_->pop(kTestTimeout).status().code(), StatusCode::kClosed);
  EXPECT_EQ(ring_->claim(producer_, kTestTimeout).status().code(), StatusCode::kClosed);
}

TEST_F(ShmRingTest, EndWakesWaitingConsumer) {
  open({.slots = 4, .first_ticket = 7});
  std::jthread consumer(
      [this] { EXPECT_EQ(ring_->pop(kTestTimeout).status().code(), StatusCode::kClosed); });
  EXPECT_TRUE(ring_->end_at(7).ok());
  consumer.join();
}

// The ticket comes from a producer, which can be wrong.
TEST_F(ShmRingTest, RejectsEndAtOtherThanFirstUnpublishedTicket) {
  open({.slots = 4});
  produce(producer_);
  produce(producer_);
  for (const uint64_t ticket : {0, 1, 3, 5}) {
    const Status ended = ring_->end_at(ticket);
    EXPECT_EQ(ended.code(), StatusCode::kInvalidArgument) << ticket;
    EXPECT_THAT(ended.message(), HasSubstr("ticket 2 is the first without a batch"));
  }
  EXPECT_FALSE(ring_->has_ended());
  expect_next(0);
  produce(producer_);
  EXPECT_TRUE(ring_->end_at(3).ok());
}

TEST_F(ShmRingTest, ReturnsAbandonedTicketOnNextClaim) {
  open({.slots = 4});
  const Claim first = claim(producer_);
  claim(producer_);
  ring_->abandon(producer_, first);
  EXPECT_FALSE(ring_->publish(producer_, first));
  EXPECT_EQ(claim(producer_).ticket, 0u);
}

TEST_F(ShmRingTest, RequeuesOnlyTicketsOfDeadProducer) {
  open({.slots = 4});
  const ProducerId crashed = add("dead");
  const Claim one = claim(crashed);
  claim(producer_);
  const Claim three = claim(crashed);
  produce(crashed);
  EXPECT_EQ(ring_->requeue(crashed), 2u);
  EXPECT_EQ(claim(producer_).ticket, one.ticket);
  EXPECT_EQ(claim(producer_).ticket, three.ticket);
  EXPECT_EQ(ring_->counters().requeued, 2u);
  EXPECT_EQ(ring_->requeue(crashed), 0u) << "once";
}

TEST_F(ShmRingTest, IgnoresPublishOfOldGeneration) {
  open({.slots = 2});
  const ProducerId zombie = add("zombie");
  const Claim stale = claim(zombie);
  ring_->requeue(zombie);
  EXPECT_FALSE(ring_->publish(zombie, stale));
  const ProducerId heir = add("heir");
  EXPECT_EQ(heir.index, zombie.index);
  EXPECT_NE(heir.generation, zombie.generation);
  const Claim again = claim(heir);
  EXPECT_EQ(again.ticket, stale.ticket);
  EXPECT_FALSE(ring_->publish(zombie, stale));
  ring_->abandon(zombie, stale);
  EXPECT_EQ(ring_->claim(zombie, kPollOnce).status().code(), StatusCode::kMismatch);
  fill(again.slot, again.ticket);
  EXPECT_TRUE(ring_->publish(heir, again));
  expect_next(0);
}

TEST_F(ShmRingTest, LimitsProducersAndReusesTheirIndices) {
  open({.slots = 2});
  std::vector<ProducerId> rows;
  while (rows.size() < kMaxProducers - 1) rows.push_back(add("x"));
  EXPECT_EQ(ring_->add_producer("one more").status().code(), StatusCode::kBusy);
  ring_->requeue(rows[10]);
  EXPECT_EQ(add("heir").index, rows[10].index);
}

TEST_F(ShmRingTest, RejectsInvalidProducerIds) {
  open({.slots = 2});
  for (const ProducerId id :
       {ProducerId{.index = 64, .generation = 1}, ProducerId{.index = ~0u, .generation = 1},
        ProducerId{.index = 3, .generation = 0}, ProducerId{.index = 0, .generation = 9}}) {
    EXPECT_EQ(ring_->claim(id, kPollOnce).status().code(), StatusCode::kMismatch);
    EXPECT_EQ(ring_->requeue(id), 0u);
    EXPECT_FALSE(ring_->publish(id, {.ticket = 0, .slot = {}}));
    ring_->set_producer_pid(id, 1);
  }
}

TEST_F(ShmRingTest, WakesBothSidesOnCloseAndRemainsClosed) {
  open({.slots = 1});
  claim(producer_);
  std::latch waiting(2);
  Status of_claim, of_pop;
  std::thread reader([&] {
    waiting.count_down();
    of_claim = ring_->claim(producer_, kTestTimeout).status();
  });
  std::thread consumer([&] {
    waiting.count_down();
    of_pop = ring_->pop(kTestTimeout).status();
  });
  waiting.wait();
  ring_->close();
  reader.join();
  consumer.join();
  EXPECT_EQ(of_claim.code(), StatusCode::kClosed);
  EXPECT_EQ(of_pop.code(), StatusCode::kClosed);
  EXPECT_TRUE(ring_->closed());
  EXPECT_EQ(ring_->pop(kTestTimeout).status().code(), StatusCode::kClosed);
}

// A second mapping of the ring's header, to wait without the poll every 100 ms.
class MappedHeader {
 public:
  explicit MappedHeader(int fd)
      : mapped_(::mmap(nullptr, sizeof(RingHeader), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {}
  ~MappedHeader() { ::munmap(mapped_, sizeof(RingHeader)); }
  MappedHeader(const MappedHeader&) = delete;
  MappedHeader& operator=(const MappedHeader&) = delete;
  RingHeader& operator*() const { return *static_cast<RingHeader*>(mapped_); }

 private:
  void* const mapped_;
};

TEST_F(ShmRingTest, WakesAllProducersWhenLastBatchIsReleased) {
  open({.slots = 1, .end_ticket = 1});
  const MappedHeader header(ring_->fd());
  std::latch waiting(2);
  std::atomic<int> woken = 0;
  const auto wait = [&] {
    EventCount slot_freed((*header).slot_freed);
    const uint32_t epoch = slot_freed.enter();
    waiting.count_down();
    const auto start = std::chrono::steady_clock::now();
    slot_freed.sleep(epoch, kTestTimeout);
    woken += std::chrono::steady_clock::now() - start < kTestTimeout;
  };
  std::thread one(wait), other(wait);
  produce(producer_);
  waiting.wait();
  expect_next(0);
  one.join();
  other.join();
  EXPECT_EQ(woken, 2) << "both must learn of the end of data";
}

TEST_F(ShmRingTest, NotifiesConsumerOnRequeue) {
  open({.slots = 1});
  const MappedHeader header(ring_->fd());
  EventCount batch_ready((*header).batch_ready);
  produce(producer_);
  const uint32_t epoch = batch_ready.enter();
  ring_->requeue(producer_);
  EXPECT_NE(batch_ready.enter(), epoch) << "the producer can have been killed before it notified";
}

TEST_F(ShmRingTest, RetiresProducerWhoseThreadsStillWait) {
  open({.slots = 1});
  const MappedHeader header(ring_->fd());
  const std::atomic_ref waiters((*header).slot_freed.waiters);
  ASSERT_TRUE(ring_->claim(producer_, kTestTimeout).ok());
  std::thread other([&] {
    EXPECT_EQ(ring_->claim(producer_, kTestTimeout).status().code(), StatusCode::kMismatch);
  });
  EXPECT_TRUE(test::eventually([&] { return waiters.load() > 0; }));
  EXPECT_EQ(ring_->retire(producer_), 1U);
  EXPECT_EQ(ring_->retire(producer_), 0U);
  other.join();
  EXPECT_EQ(waiters.load(), 0U) << "each thread leaves once";
  EXPECT_EQ(ring_->requeue(producer_), 0U);
  const auto next = ring_->add_producer("next");
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->index, producer_.index) << "the row is free";
}

TEST_F(ShmRingTest, WakesConsumerOnPublishAndProducerOnRelease) {
  open({.slots = 1});
  std::thread reader([&] {
    for (int i = 0; i < 200; ++i) {
      const auto held = ring_->claim(producer_, kTestTimeout);
      ASSERT_TRUE(held.ok()) << held.status().to_string();
      fill(held->slot, held->ticket);
      ring_->publish(producer_, *held);
    }
  });
  for (uint64_t ticket = 0; ticket < 200; ++ticket) {
    const auto batch = ring_->pop(kTestTimeout);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    ASSERT_TRUE(holds(batch->slot, ticket));
    ring_->release(ticket);
  }
  reader.join();
}

TEST_F(ShmRingTest, CountsBatchesAndReadTimes) {
  open({.slots = 4, .first_ticket = 100});
  for (int i = 0; i < 3; ++i) produce(producer_);
  expect_next(100);
  ring_->add_read_time({.total = 5us, .decode = 2us, .transform = 1us});
  ring_->add_read_time({.total = 6us, .decode = 3us});
  const RingCounters counters = ring_->counters();
  EXPECT_EQ(counters.published, 3u);
  EXPECT_EQ(counters.consumed, 1u);
  EXPECT_EQ(counters.ready, 2u);
  EXPECT_EQ(counters.read_ns, 11000u);
  EXPECT_EQ(counters.decode_ns, 5000u);
  EXPECT_EQ(counters.transform_ns, 1000u);
}

TEST_F(ShmRingTest, DeliversSampleErrorsInOrderExactlyOnce) {
  open({.slots = 2});
  const Claim held = claim(producer_);
  ring_->report_sample_error(
      {.ticket = held.ticket, .sample = 7, .code = StatusCode::kCorrupt, .reason = "first"});
  ring_->report_sample_error(
      {.ticket = held.ticket, .sample = 3, .code = StatusCode::kIoError, .reason = "second"});
  const auto reports = ring_->drain_sample_errors();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].sample, 7u);
  EXPECT_EQ(reports[0].reason, "first");
  EXPECT_EQ(reports[1].code, StatusCode::kIoError);
  EXPECT_TRUE(ring_->drain_sample_errors().empty());
  EXPECT_EQ(ring_->counters().sample_errors, 2u);
}

TEST_F(ShmRingTest, TruncatesLongMessagesBetweenCharacters) {
  open({.slots = 2});
  std::string reason(199, 'x');
  reason += "\xc3\xa9 and more";  // the character would end at byte 201
  ring_->report_sample_error(
      {.ticket = 0, .sample = 1, .code = StatusCode::kCorrupt, .reason = reason});
  const auto reports = ring_->drain_sample_errors();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].reason, std::string(199, 'x'));
}

TEST_F(ShmRingTest, WaitsForErrorQueueSpaceDuringDrain) {
  open({.slots = 2});
  constexpr uint64_t kMany = 5000;
  std::thread reader([this] {
    for (uint64_t i = 0; i < kMany; ++i)
      ring_->report_sample_error(
          {.ticket = 0, .sample = i, .code = StatusCode::kCorrupt, .reason = "r"});
  });
  std::set<uint64_t> taken;
  EXPECT_TRUE(test::eventually([&] {
    for (const SampleError& error : ring_->drain_sample_errors()) taken.insert(error.sample);
    return taken.size() + ring_->counters().lost_reports >= kMany;
  }));
  reader.join();
  EXPECT_EQ(taken.size(), kMany);
}

TEST_F(ShmRingTest, StopsWaitingForErrorQueueOnClose) {
  open({.slots = 2});
  std::thread reader([this] {
    for (uint64_t i = 0; i < 300; ++i)
      ring_->report_sample_error(
          {.ticket = 0, .sample = i, .code = StatusCode::kCorrupt, .reason = "r"});
  });
  EXPECT_TRUE(test::eventually([&] { return ring_->counters().sample_errors >= 257; }));
  ring_->close();
  reader.join();
  EXPECT_EQ(ring_->counters().lost_reports, 0u) << "nothing will use their batches";
}

TEST_F(ShmRingTest, CountsReportsDroppedByFullErrorQueue) {
  open({.slots = 2});
  for (uint64_t i = 0; i < 300; ++i)
    ring_->report_sample_error(
        {.ticket = 0, .sample = i, .code = StatusCode::kCorrupt, .reason = "r"});
  EXPECT_EQ(ring_->drain_sample_errors().size(), 256u);
  EXPECT_EQ(ring_->counters().sample_errors, 300u);
  EXPECT_EQ(ring_->counters().lost_reports, 44u);
  ring_->report_sample_error(
      {.ticket = 0, .sample = 1, .code = StatusCode::kCorrupt, .reason = "r"});
  EXPECT_EQ(ring_->drain_sample_errors().size(), 1u);
}

TEST_F(ShmRingTest, SetsCloseOnExecOnDescriptor) {
  open({.slots = 2});
  EXPECT_NE(::fcntl(ring_->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(ShmRingCreateTest, ReportsRequiredMemoryWhenRingIsTooLarge) {
  const auto ring = ShmRing::create(small_layout(int64_t{1} << 30, 1024), {.slots = 8});
  ASSERT_FALSE(ring.ok());
  EXPECT_EQ(ring.status().code(), StatusCode::kNoSpace);
  EXPECT_THAT(ring.status().message(), HasSubstr("33554433 MiB"));
  const auto absurd = ShmRing::create(small_layout(int64_t{1} << 60, 1 << 20), {.slots = 8});
  EXPECT_EQ(absurd.status().code(), StatusCode::kNoSpace);
}

// The kernel would kill the process instead of returning an error.
TEST(ShmRingCreateTest, ReportsLimitOfCgroupBeforeAllocation) {
  const auto group = test::OwnCgroup::with_memory(uint64_t{256} << 20);
  if (!group.is_ready()) GTEST_SKIP() << "a control group with a memory limit cannot be created";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!group.enter()) ::_exit(99);
    const auto large = ShmRing::create(small_layout(1 << 18, 64), {.slots = 8});  // 512 MiB
    if (large.ok()) ::_exit(1);
    const std::string& message = large.status().message();
    if (large.status().code() != StatusCode::kNoSpace ||
        message.find("memory cgroup ") == std::string::npos ||
        message.find("lower feed.prefetch_batches") == std::string::npos)
      ::_exit(2);
    ::_exit(ShmRing::create(small_layout(), {.slots = 8}).ok() ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ShmRingCreateTest, ReportsErrorOnFileSizeLimitWithoutSignal) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = 64 << 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const auto ring = ShmRing::create(small_layout(), {.slots = 8});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(ring.status().code(), StatusCode::kNoSpace);
}

// ---- Slots that are allocated after create()

TEST(RingAllocationTest, FillsSlotsThatAreAllocatedLater) {
  for (const uint64_t first : {0, 13}) {
    const auto ring =
        make_ring({.slots = 8, .first_ticket = first, .eager_bytes = 0}, small_layout(1 << 10, 64));
    ASSERT_NE(ring, nullptr);
    const ProducerId producer = *ring->add_producer("test");
    for (uint64_t round = 0; round < 3; ++round) {
      for (uint64_t i = 0; i < ring->slots(); ++i) {
        const auto claim = ring->claim(producer, kTestTimeout);
        ASSERT_TRUE(claim.ok()) << claim.status().to_string();
        EXPECT_EQ(claim->ticket, first + round * ring->slots() + i);
        fill(claim->slot, claim->ticket);
        ASSERT_TRUE(ring->publish(producer, *claim));
      }
      for (uint64_t i = 0; i < ring->slots(); ++i) {
        const auto batch = ring->pop(kTestTimeout);
        ASSERT_TRUE(batch.ok()) << batch.status().to_string();
        EXPECT_TRUE(holds(batch->slot, batch->ticket));
        ring->release(batch->ticket);
      }
    }
  }
}

TEST(RingAllocationTest, EndsWhileSlotsAreAllocated) {
  for (int i = 0; i < 20; ++i)
    ASSERT_NE(make_ring({.slots = 64, .eager_bytes = 0}, small_layout(1 << 10, 64)), nullptr);
}

TEST(RingAllocationTest, IsClaimedOnlyWhenAllocated) {
  const auto layout = small_layout();
  const RingHeader header = *make_header(layout, {.slots = 3, .first_ticket = 4});
  Segment segment = *Segment::create(header.segment_bytes);
  initialize_segment(segment.bytes(), header, layout, 1);
  MappedRing ring(std::move(segment), SegmentView{header, layout}, MappedRing::Role::kCreator);
  std::promise<void> may_allocate;
  const auto permission = may_allocate.get_future().share();
  std::atomic<uint64_t> allocated{0};
  ring.start_allocation(1, [&, permission](uint64_t offset, uint64_t bytes) {
    permission.wait();
    EXPECT_EQ((offset - header.payload) % header.slot_stride, 0u);
    EXPECT_EQ(bytes, header.slot_stride);
    ++allocated;
    return Status();
  });
  const auto attached = *ShmRing::attach(UniqueFd(::fcntl(ring.fd(), F_DUPFD_CLOEXEC, 0)));
  const ProducerId producer = *ring.add_producer("test");
  const auto first = attached->claim(producer, kPollOnce);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(attached->claim(producer, kPollOnce).status().code(), StatusCode::kTimedOut);
  ASSERT_TRUE(attached->publish(producer, *first));
  // Otherwise its slot could be claimed again before those of the tickets behind it.
  EXPECT_EQ(ring.pop(kPollOnce).status().code(), StatusCode::kTimedOut);
  may_allocate.set_value();
  EXPECT_EQ(ring.pop(kTestTimeout)->ticket, 4u);
  ring.release(4);
  for (uint64_t ticket = 5; ticket < 8; ++ticket) {
    const auto claim = attached->claim(producer, kTestTimeout);
    ASSERT_TRUE(claim.ok()) << claim.status().to_string();
    EXPECT_EQ(claim->ticket, ticket);
    ASSERT_TRUE(attached->publish(producer, *claim));
    EXPECT_TRUE(ring.pop(kTestTimeout).ok());
  }
  EXPECT_EQ(allocated, 2u);
}

TEST(RingAllocationTest, ReportsMissingMemoryToConsumer) {
  const auto layout = small_layout();
  const RingHeader header = *make_header(layout, {.slots = 3});
  Segment segment = *Segment::create(header.segment_bytes);
  initialize_segment(segment.bytes(), header, layout, 1);
  MappedRing ring(std::move(segment), SegmentView{header, layout}, MappedRing::Role::kCreator);
  ring.start_allocation(1, [](uint64_t, uint64_t) {
    return Status(StatusCode::kNoSpace, "the ring needs 1 MiB of shared memory");
  });
  const Status status = ring.pop(kTestTimeout).status();
  EXPECT_EQ(status.code(), StatusCode::kNoSpace);
  EXPECT_THAT(status.message(), HasSubstr("the ring needs 1 MiB of shared memory"));
}

TEST(ShmRingCreateTest, RejectsInvalidSettings) {
  const auto code = [](const BatchLayout& layout, const RingOptions& options) {
    return ShmRing::create(layout, options).status().code();
  };
  EXPECT_EQ(code(small_layout(), {.slots = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(small_layout(), {.slots = 1 << 20}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(small_layout(), {.first_ticket = ~0ull}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(BatchLayout({}, 1), {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(small_layout(4, 0), {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(small_layout(0, 1), {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(small_layout(-4, 1), {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(BatchLayout({{.name = std::string(32, 'n')}}, 1), {}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code(BatchLayout({{.name = "x", .shape = std::vector<int64_t>(9, 1)}}, 1), {}),
            StatusCode::kInvalidArgument);
}

class RingProgressTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ring_ = make_ring({.slots = 3, .end_ticket = 5});
    ASSERT_NE(ring_, nullptr);
    one_ = *ring_->add_producer("one");
    other_ = *ring_->add_producer("other");
  }
  std::unique_ptr<ShmRing> ring_;
  ProducerId one_, other_;
};

TEST_F(RingProgressTest, CountsSamplesPerProducer) {
  for (int i = 0; i < 3; ++i) ring_->add_completed_samples(one_, 1);
  ring_->add_completed_samples(other_, 1);
  EXPECT_EQ(ring_->progress(one_).samples, 3u);
  EXPECT_EQ(ring_->progress(other_).samples, 1u);
}

TEST_F(RingProgressTest, StartsAtZeroWhenProducerIndexIsReused) {
  ring_->add_completed_samples(one_, 1);
  ring_->requeue(one_);
  const auto next = ring_->add_producer("next");
  ASSERT_TRUE(next.ok());
  ASSERT_EQ(next->index, one_.index);
  EXPECT_EQ(ring_->progress(*next).samples, 0u);
}

TEST_F(RingProgressTest, CountsClaimsPerProducer) {
  const auto claim = ring_->claim(one_, kPollOnce);
  ASSERT_TRUE(claim.ok());
  EXPECT_EQ(ring_->progress(one_).claims, 1u);
  EXPECT_EQ(ring_->progress(other_).claims, 0u);
  ring_->abandon(one_, *claim);
  EXPECT_EQ(ring_->progress(one_).claims, 0u);
}

TEST_F(RingProgressTest, CountsPollsWhileWaitingForSlot) {
  for (uint64_t ticket = 0; ticket < 3; ++ticket)
    ASSERT_TRUE(ring_->publish(one_, *ring_->claim(one_, kPollOnce)));
  const uint64_t polls = ring_->progress(one_).polls;
  EXPECT_GE(polls, 3u);
  EXPECT_EQ(ring_->claim(one_, 1ms).status().code(), StatusCode::kTimedOut);
  EXPECT_GT(ring_->progress(one_).polls, polls);
  EXPECT_EQ(ring_->progress(other_).polls, 0u);
}

TEST_F(RingProgressTest, ReturnsZerosForUnknownProducer) {
  const ProducerId unknown{.index = 1000, .generation = 1};
  ring_->add_completed_samples(unknown, 1);
  EXPECT_EQ(ring_->progress(unknown).samples, 0u);
  EXPECT_EQ(ring_->progress(unknown).claims, 0u);
}

}  // namespace
}  // namespace stoker::ring
