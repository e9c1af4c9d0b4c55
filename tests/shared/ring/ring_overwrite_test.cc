// A process that maps the segment overwrites fields that only others may write. The creator of the
// ring must detect it or be unaffected.
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/ring/ring_fixture.h"
#include "tests/shared/ring/ring_view.h"

namespace stoker::ring {
namespace {

using ::testing::HasSubstr;

class RingOverwriteTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ring_ = make_ring({.slots = 3, .end_ticket = 9});
    ASSERT_NE(ring_, nullptr);
    view_.emplace(*ring_);
    producer_ = *ring_->add_producer("reader");
  }
  void produce() {
    const auto claim = ring_->claim(producer_, kPollOnce);
    ASSERT_TRUE(claim.ok()) << claim.status().to_string();
    ASSERT_TRUE(ring_->publish(producer_, *claim));
  }
  void expect_overwritten(const std::string& what) {
    const Status status = ring_->pop(kTestTimeout).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_THAT(status.message(), HasSubstr("a producer overwrote the ring"));
  }

  std::unique_ptr<ShmRing> ring_;
  std::optional<RingView> view_;
  ProducerId producer_;
};

TEST_F(RingOverwriteTest, ReportsClosedFlagSetByProducer) {
  overwrite(view_->header().closed, 1u);
  EXPECT_FALSE(ring_->closed());
  EXPECT_FALSE(ring_->has_ended());
  expect_overwritten("closed is 1 instead of 0");
}

TEST_F(RingOverwriteTest, ReportsOverwrittenNextTicket) {
  produce();
  for (const uint64_t wrong : {uint64_t{1}, uint64_t{9}, ~uint64_t{0}}) {
    overwrite(view_->header().next_ticket, wrong);
    expect_overwritten("next_ticket is " + std::to_string(wrong) + " instead of 0");
  }
  EXPECT_EQ(ring_->counters().consumed, 0u);
}

TEST_F(RingOverwriteTest, ClaimsAndPopsByOwnTicket) {
  for (uint64_t ticket = 0; ticket < 3; ++ticket) {
    overwrite(view_->header().next_ticket, uint64_t{7});
    overwrite(view_->header().closed, 1u);
    produce();
    overwrite(view_->header().next_ticket, ticket);
    overwrite(view_->header().closed, 0u);
    const auto batch = ring_->pop(kPollOnce);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    EXPECT_EQ(batch->ticket, ticket);
    ring_->release(ticket);
  }
}

TEST_F(RingOverwriteTest, ReportsClaimOfUnknownProducer) {
  const uint32_t gone = ring_->add_producer("gone")->index;
  ring_->requeue({.index = gone, .generation = 1});
  for (const SlotState& state :
       {SlotState{Phase::kClaimed, 40, 1, 0}, SlotState{Phase::kClaimed, producer_.index, 2, 0},
        SlotState{Phase::kClaimed, gone, 1, 0}}) {
    overwrite(view_->slot_word(0), encode(state));
    expect_overwritten("ring slot 0 has state");
  }
  overwrite(view_->slot_word(0),
            encode({Phase::kClaimed, producer_.index, producer_.generation, 0}));
  EXPECT_EQ(ring_->pop(kPollOnce).status().code(), StatusCode::kTimedOut);
}

TEST_F(RingOverwriteTest, ReportsSlotsThatAreNotInUse) {
  for (const Phase phase : {Phase::kInUse, Phase{0}, Phase{9}}) {
    overwrite(view_->slot_word(0), encode({.phase = phase, .turn = 0}));
    expect_overwritten("ring slot 0 has state");
    overwrite(view_->slot_word(0), encode({.phase = phase, .turn = ~0u}));
    expect_overwritten("ring slot 0 has state");
  }
}

// Producers compare whole words and would never claim it.
TEST_F(RingOverwriteTest, ReportsFreeSlotWithOwner) {
  overwrite(view_->slot_word(0), encode({Phase::kFree, 2, 0, 0}));
  expect_overwritten("ring slot 0 has state");
  overwrite(view_->slot_word(0), encode({Phase::kRequeued, 0, 1, 0}));
  expect_overwritten("ring slot 0 has state");
}

TEST_F(RingOverwriteTest, NeverReturnsAnotherBatchInSlotInUse) {
  for (int i = 0; i < 3; ++i) produce();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ring_->pop(kPollOnce).ok());
  overwrite(view_->slot_word(0), encode({.phase = Phase::kReady, .turn = 1}));
  expect_overwritten("ring slot 0 has state");
  ring_->release(0);
  expect_overwritten("ring slot 0 has state");
}

TEST_F(RingOverwriteTest, RequeuesTicketsOfProducerWithOverwrittenRow) {
  const ProducerId other = *ring_->add_producer("other");
  ASSERT_TRUE(ring_->claim(other, kPollOnce).ok());
  overwrite(view_->producer(other.index).word, uint64_t{77} << 32);
  EXPECT_EQ(ring_->progress(other).claims, 1u);
  EXPECT_EQ(ring_->requeue(other), 1u);
  produce();
  EXPECT_TRUE(ring_->pop(kPollOnce).ok());
  EXPECT_EQ(ring_->add_producer("next")->generation, other.generation + 1);
}

TEST_F(RingOverwriteTest, KeepsNumberOfActiveWorkers) {
  ring_->set_active_workers(2);
  overwrite(view_->header().active_workers, 1u);
  EXPECT_EQ(ring_->active_workers(), 2u);
}

TEST_F(RingOverwriteTest, FreesReportEntriesThatNoProducerWrites) {
  produce();
  ASSERT_TRUE(ring_->pop(kPollOnce).ok());
  constexpr uint64_t kWriting = 1;
  for (uint32_t i = 0; i < kReports; ++i)
    overwrite(view_->report(i).word, i % 2 == 0 ? kWriting : uint64_t{0xabc7});
  EXPECT_TRUE(ring_->drain_sample_errors().empty());
  ring_->report_sample_error({.ticket = 1, .sample = 5, .reason = "late"});
  const auto reports = ring_->drain_sample_errors();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].reason, "late");
}

TEST_F(RingOverwriteTest, BoundsFieldsOfReports) {
  ring_->report_sample_error({.ticket = 0, .sample = 5, .reason = "short"});
  overwrite(view_->report(0).length, ~0u);
  overwrite(view_->report(0).code, 99u);
  const auto reports = ring_->drain_sample_errors();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].reason.size(), kReasonBytes);
  EXPECT_EQ(reports[0].code, StatusCode::kCorrupt);
}

TEST_F(RingOverwriteTest, EndsWhenAllTicketsAreFilledOrConsumed) {
  for (int i = 0; i < 9; ++i) {
    EXPECT_FALSE(ring_->has_ended());
    produce();
    if (i < 6) {
      const auto batch = ring_->pop(kPollOnce);
      ASSERT_TRUE(batch.ok());
      ring_->release(batch->ticket);
    }
  }
  EXPECT_TRUE(ring_->has_ended());
  for (int left = 9 - 6; left > 0; --left) {
    EXPECT_TRUE(ring_->pop(kPollOnce).ok());
    EXPECT_TRUE(ring_->has_ended());
  }
  EXPECT_FALSE(ring_->pop(kPollOnce).ok());
  EXPECT_TRUE(ring_->has_ended());
}

}  // namespace
}  // namespace stoker::ring
