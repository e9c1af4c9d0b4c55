// Many threads on one ring, for ThreadSanitizer and to verify that each ticket arrives exactly
// once, in order and complete.
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/shared/ring/ring_fixture.h"

namespace stoker::ring {
namespace {

struct ErrorCase {
  uint32_t abandon_percent = 0;
  uint32_t crash_percent = 0;
};

// A producer that occasionally abandons a ticket, or is requeued with a claimed ticket and
// registers again under another generation.
void produce(ShmRing& ring, uint32_t seed, ErrorCase error) {
  std::mt19937 random(seed);
  auto id = ring.add_producer("stress");
  ASSERT_TRUE(id.ok());
  while (true) {
    const auto claim = ring.claim(*id, kTestTimeout);
    if (!claim.ok()) {
      EXPECT_EQ(claim.status().code(), StatusCode::kClosed) << claim.status().to_string();
      return;
    }
    const uint32_t dice = random() % 100;
    // Half of the tickets are filled with wrong bytes first.
    fill(claim->slot, dice < 50 ? claim->ticket : ~claim->ticket);
    if (dice < error.abandon_percent) {
      ring.abandon(*id, *claim);
    } else if (dice < error.abandon_percent + error.crash_percent) {
      ring.requeue(*id);
      EXPECT_FALSE(ring.publish(*id, *claim));
      id = ring.add_producer("stress");
      ASSERT_TRUE(id.ok());
    } else {
      fill(claim->slot, claim->ticket);
      ring.report_sample_error({.ticket = claim->ticket,
                                .sample = claim->ticket,
                                .code = StatusCode::kCorrupt,
                                .reason = "stress"});
      EXPECT_TRUE(ring.publish(*id, *claim));
    }
  }
}

void run(uint64_t slots, int producers, uint64_t tickets, ErrorCase error) {
  const auto ring = make_ring({.slots = slots, .first_ticket = 17, .end_ticket = 17 + tickets});
  ASSERT_NE(ring, nullptr);
  std::vector<std::thread> threads;
  for (int i = 0; i < producers; ++i)
    threads.emplace_back([&ring, i, error] { produce(*ring, static_cast<uint32_t>(i), error); });
  std::atomic<bool> done = false;
  uint64_t reports = 0;
  std::thread reporter([&] {
    while (!done) {
      for (const auto& sample_error : ring->drain_sample_errors()) {
        EXPECT_EQ(sample_error.ticket, sample_error.sample);
        EXPECT_EQ(sample_error.reason, "stress");
        ++reports;
      }
      std::this_thread::yield();
    }
  });
  for (uint64_t ticket = 17; ticket < 17 + tickets; ++ticket) {
    const auto batch = ring->pop(kTestTimeout);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    ASSERT_EQ(batch->ticket, ticket);
    ASSERT_TRUE(holds(batch->slot, ticket)) << "ticket " << ticket;
    ring->release(ticket);
  }
  EXPECT_EQ(ring->pop(kTestTimeout).status().code(), StatusCode::kClosed);
  for (auto& thread : threads) thread.join();
  done = true;
  reporter.join();
  reports += ring->drain_sample_errors().size();
  EXPECT_EQ(reports + ring->counters().lost_reports, tickets);
  EXPECT_EQ(ring->counters().published, tickets);
}

TEST(RingStressTest, DeliversAllBatchesWithManyProducers) { run(8, 4, 4000, {}); }
TEST(RingStressTest, DeliversAllBatchesWithOneSlot) { run(1, 4, 1500, {}); }
TEST(RingStressTest, DeliversAllBatchesWhenProducersAbandonTickets) {
  run(4, 4, 2000, {.abandon_percent = 30});
}
TEST(RingStressTest, DeliversAllBatchesWhenProducersCrashAndRestart) {
  run(4, 4, 2000, {.abandon_percent = 10, .crash_percent = 20});
}

TEST(RingStressTest, StopsAllThreadsOnClose) {
  for (int round = 0; round < 20; ++round) {
    const auto ring = make_ring({.slots = 3});
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 3; ++i) threads.emplace_back([&ring, i] { produce(*ring, i, {}); });
    for (uint64_t ticket = 0; ticket < 20; ++ticket) {
      ASSERT_TRUE(ring->pop(kTestTimeout).ok());
      ring->release(ticket);
    }
    ring->close();
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace stoker::ring
