// What the ring tells a supervisor about its producers.
#include <gtest/gtest.h>

#include "tests/shared/ring/ring_fixture.h"

namespace stoker::ring {
namespace {

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
  const auto claim = ring_->claim(one_, kSoon);
  ASSERT_TRUE(claim.ok());
  EXPECT_EQ(ring_->progress(one_).claims, 1u);
  EXPECT_EQ(ring_->progress(other_).claims, 0u);
  ring_->abandon(one_, *claim);
  EXPECT_EQ(ring_->progress(one_).claims, 0u);
}

TEST_F(RingProgressTest, CountsPollsWhileWaitingForSlot) {
  for (uint64_t ticket = 0; ticket < 3; ++ticket)
    ASSERT_TRUE(ring_->publish(one_, *ring_->claim(one_, kSoon)));
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
