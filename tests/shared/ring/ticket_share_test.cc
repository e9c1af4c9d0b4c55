#include "shared/ring/ticket_share.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/shared/ring/ring_fixture.h"

namespace stoker::ring {
namespace {

std::vector<uint64_t> first_tickets(const TicketShare& share, uint64_t count) {
  std::vector<uint64_t> tickets;
  for (uint64_t i = 0; i < count; ++i) tickets.push_back(share.ticket_at(i));
  return tickets;
}

TEST(TicketShareTest, ContainsEveryTicketByDefault) {
  const TicketShare share;
  EXPECT_EQ(first_tickets(share, 4), (std::vector<uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(share.count_before(1234567), 1234567u);
}

TEST(TicketShareTest, IsOneStretchOfEachStep) {
  EXPECT_EQ(first_tickets({.tickets_per_step = 4, .rank = 0, .world_size = 2}, 6),
            (std::vector<uint64_t>{0, 1, 4, 5, 8, 9}));
  EXPECT_EQ(first_tickets({.tickets_per_step = 4, .rank = 1, .world_size = 2}, 6),
            (std::vector<uint64_t>{2, 3, 6, 7, 10, 11}));
  EXPECT_EQ(first_tickets({.tickets_per_step = 3, .rank = 2, .world_size = 3}, 3),
            (std::vector<uint64_t>{2, 5, 8}));
}

TEST(TicketShareTest, PutsEachTicketIntoTheShareOfOneRank) {
  for (const uint64_t tickets_per_step : {1, 2, 6, 8, 12, 10000}) {
    for (uint64_t world_size = 1; world_size <= tickets_per_step; ++world_size) {
      if (tickets_per_step % world_size != 0) continue;
      for (uint64_t ticket = 0; ticket < 3 * tickets_per_step; ticket += 1 + tickets_per_step / 7) {
        const uint64_t owner = ticket % tickets_per_step / (tickets_per_step / world_size);
        for (const uint64_t rank : {uint64_t{0}, owner, world_size - 1}) {
          const TicketShare share{tickets_per_step, rank, world_size};
          ASSERT_EQ(share.contains(ticket), rank == owner) << ticket << " on rank " << rank;
          if (rank == owner) {
            ASSERT_EQ(share.ticket_at(share.count_before(ticket)), ticket);
          }
        }
      }
    }
  }
}

TEST(TicketShareTest, CountsOwnTicketsBeforeAnyTicket) {
  const TicketShare share{.tickets_per_step = 6, .rank = 1, .world_size = 3};  // 2, 3, 8, 9, …
  uint64_t own = 0;
  for (uint64_t ticket = 0; ticket < 40; ++ticket) {
    EXPECT_EQ(share.count_before(ticket), own) << ticket;
    own += share.contains(ticket) ? 1 : 0;
  }
}

TEST(TicketShareTest, IsValidForRanksThatDivideStep) {
  EXPECT_TRUE((TicketShare{.tickets_per_step = 8, .rank = 7, .world_size = 8}.is_valid()));
  EXPECT_FALSE((TicketShare{.tickets_per_step = 8, .rank = 8, .world_size = 8}.is_valid()));
  EXPECT_FALSE((TicketShare{.tickets_per_step = 8, .rank = 0, .world_size = 3}.is_valid()));
  EXPECT_FALSE((TicketShare{.tickets_per_step = 8, .rank = 0, .world_size = 16}.is_valid()));
  EXPECT_FALSE((TicketShare{.tickets_per_step = 8, .rank = 0, .world_size = 0}.is_valid()));
}

// ---- The ring of a rank

constexpr TicketShare kSecondHalf{.tickets_per_step = 4, .rank = 1, .world_size = 2};

class RingOfRankTest : public ::testing::Test {
 protected:
  void open(const RingOptions& options) {
    ring_ = make_ring(options);
    ASSERT_NE(ring_, nullptr);
    const auto producer = ring_->add_producer("reader");
    ASSERT_TRUE(producer.ok());
    producer_ = *producer;
  }
  // Tickets of all batches until the end of data, each claimed and published by `from`.
  std::vector<uint64_t> consume_all(ShmRing& from) {
    std::vector<uint64_t> tickets;
    while (true) {
      const auto claim = from.claim(producer_, kPollOnce);
      if (claim.ok()) {
        fill(claim->slot, claim->ticket);
        EXPECT_TRUE(from.publish(producer_, *claim));
      }
      const auto batch = ring_->pop(kPollOnce);
      if (!batch.ok()) {
        EXPECT_EQ(batch.status().code(), StatusCode::kClosed);
        return tickets;
      }
      EXPECT_TRUE(holds(batch->slot, batch->ticket));
      tickets.push_back(batch->ticket);
      ring_->release(batch->ticket);
    }
  }

  std::unique_ptr<ShmRing> ring_;
  ProducerId producer_;
};

TEST_F(RingOfRankTest, HasTicketsOfShareUpToEnd) {
  open({.slots = 3, .first_ticket = 20, .end_ticket = 32, .share = kSecondHalf});
  EXPECT_EQ(consume_all(*ring_), (std::vector<uint64_t>{22, 23, 26, 27, 30, 31}));
  EXPECT_TRUE(ring_->has_ended());
}

TEST_F(RingOfRankTest, GivesTicketsOfShareToAttachedProducer) {
  open({.slots = 3, .first_ticket = 20, .end_ticket = 32, .share = kSecondHalf});
  const auto attached = ShmRing::attach(UniqueFd(::dup(ring_->fd())), kSecondHalf);
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_EQ(consume_all(**attached), (std::vector<uint64_t>{22, 23, 26, 27, 30, 31}));
}

TEST_F(RingOfRankTest, ReturnsAbandonedAndRequeuedTickets) {
  open({.slots = 3, .share = kSecondHalf});
  const auto first = ring_->claim(producer_, kPollOnce);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->ticket, 2u);
  ring_->abandon(producer_, *first);
  const auto again = ring_->claim(producer_, kPollOnce);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->ticket, 2u);
  EXPECT_EQ(ring_->requeue(producer_), 1u);
  EXPECT_FALSE(ring_->publish(producer_, *again));
  const auto other = ring_->add_producer("other");
  ASSERT_TRUE(other.ok());
  const auto claim = ring_->claim(*other, kPollOnce);
  ASSERT_TRUE(claim.ok());
  EXPECT_EQ(claim->ticket, 2u);
}

TEST_F(RingOfRankTest, ReportsSampleErrorsUnderTheirTickets) {
  open({.slots = 4, .share = kSecondHalf});
  for (int i = 0; i < 3; ++i) {
    const auto claim = ring_->claim(producer_, kPollOnce);
    ASSERT_TRUE(claim.ok());
    ring_->report_sample_error({.ticket = claim->ticket, .sample = 7, .reason = "corrupt"});
  }
  std::vector<uint64_t> tickets;
  for (const SampleError& error : ring_->drain_sample_errors()) tickets.push_back(error.ticket);
  EXPECT_EQ(tickets, (std::vector<uint64_t>{2, 3, 6}));
}

TEST_F(RingOfRankTest, CountsNextTicketOfShare) {
  open({.slots = 4, .first_ticket = 8, .share = kSecondHalf});
  EXPECT_EQ(ring_->counters().next_ticket, 10u);
  EXPECT_EQ(ring_->first_unpublished(), 10u);
  for (int i = 0; i < 2; ++i) {
    const auto claim = ring_->claim(producer_, kPollOnce);
    ASSERT_TRUE(claim.ok());
    EXPECT_TRUE(ring_->publish(producer_, *claim));
  }
  EXPECT_EQ(ring_->first_unpublished(), 14u);
  ASSERT_TRUE(ring_->pop(kPollOnce).ok());
  EXPECT_EQ(ring_->counters().next_ticket, 11u);
  EXPECT_EQ(ring_->counters().consumed, 1u);
}

TEST_F(RingOfRankTest, EndsAtTicketWithoutBatch) {
  open({.slots = 4, .share = kSecondHalf});
  EXPECT_EQ(ring_->end_at(3).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(ring_->end_at(2).ok());
  EXPECT_EQ(ring_->pop(kPollOnce).status().code(), StatusCode::kClosed);
}

TEST_F(RingOfRankTest, RejectsShareThatDoesNotDivideStep) {
  const auto ring =
      ShmRing::create(BatchLayout({{"input", DType::kF32, {2}}}, 1),
                      {.slots = 2, .share = {.tickets_per_step = 8, .rank = 0, .world_size = 3}});
  ASSERT_FALSE(ring.ok());
  EXPECT_EQ(ring.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ring.status().message(), "ring: rank 0 of 3 cannot share steps of 8 micro-batches");
}

}  // namespace
}  // namespace stoker::ring
