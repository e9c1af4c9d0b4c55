#include "shared/feed/read_ahead.h"

#include <gtest/gtest.h>

namespace stoker::feed {
namespace {

using namespace std::chrono_literals;

void note(ReadAheadTuner& tuner, int samples, std::chrono::nanoseconds waited,
          std::chrono::nanoseconds worked) {
  for (int i = 0; i < samples; ++i) {
    tuner.record_read(waited);
    tuner.record_work(worked);
  }
}

TEST(ReadAheadTunerTest, RequestsDoubleDepthOfLittlesLaw) {
  ReadAheadTuner tuner(2, 1000);
  note(tuner, 1000, 10ms, 1ms);
  EXPECT_NEAR(tuner.wanted(), 2 * 2 * 10, 1);
}

TEST(ReadAheadTunerTest, LimitsDepthToMaximum) {
  ReadAheadTuner tuner(2, 16);
  note(tuner, 1000, 10ms, 1ms);
  EXPECT_EQ(tuner.wanted(), 16u);
}

TEST(ReadAheadTunerTest, RequestsNothingWhenReadsDoNotWait) {
  ReadAheadTuner tuner(4, 16);
  note(tuner, 1000, 0ms, 1us);
  EXPECT_EQ(tuner.wanted(), 0u);
  note(tuner, 1000, ReadAheadTuner::kMinWait, 1us);  // like a contended lock
  EXPECT_EQ(tuner.wanted(), 0u);
}

TEST(ReadAheadTunerTest, RequestsNothingWhenWaitIsSmallComparedWithWork) {
  ReadAheadTuner tuner(4, 16);
  note(tuner, 1000, 1ms, 20ms);
  EXPECT_EQ(tuner.wanted(), 0u);
}

TEST(ReadAheadTunerTest, IgnoresSingleSlowRead) {
  ReadAheadTuner tuner(4, 16);
  for (int round = 0; round < 10; ++round) {
    note(tuner, 50, 0ms, 1ms);
    note(tuner, 2, 100ms, 1ms);
    EXPECT_EQ(tuner.wanted(), 0u);
  }
}

TEST(ReadAheadTunerTest, RequestsReadAheadWithinFewReads) {
  ReadAheadTuner tuner(1, 16);
  note(tuner, 4, 10ms, 1ms);
  EXPECT_GT(tuner.wanted(), 0u);
}

TEST(ReadAheadTunerTest, StopsWhenReadsNoLongerWait) {
  ReadAheadTuner tuner(1, 16);
  note(tuner, 100, 10ms, 1ms);
  note(tuner, 10 * ReadAheadTuner::kMeanWindow, 0ms, 1ms);
  EXPECT_EQ(tuner.wanted(), 0u);
}

TEST(ReadAheadTunerTest, ContinuesWhileSomeReadsWait) {
  ReadAheadTuner tuner(1, 16);
  note(tuner, 100, 10ms, 1ms);
  for (int round = 0; round < 50; ++round) {  // nine of ten reads hit the page cache
    note(tuner, 9, 0ms, 1ms);
    note(tuner, 1, 10ms, 1ms);
    EXPECT_GT(tuner.wanted(), 0u);
  }
}

TEST(ReadAheadOptionsTest, DividesReadsAndMemoryAmongPools) {
  config::FeedConfig feed;
  feed.read_ahead = 7;
  feed.read_ahead_mib = 12;
  int reads = 0;
  for (uint32_t number = 0; number < 3; ++number) {
    const ReadAheadOptions share = make_read_ahead_options(feed, number, 3);
    EXPECT_FALSE(share.adapts);
    EXPECT_EQ(share.memory_bytes, 4u << 20);
    EXPECT_GE(share.max_reads, 2);
    reads += share.max_reads;
  }
  EXPECT_EQ(reads, 7);
}

TEST(ReadAheadOptionsTest, AdaptsWithoutExplicitNumber) {
  const config::FeedConfig feed;
  EXPECT_TRUE(make_read_ahead_options(feed, 0, 1).adapts);
  EXPECT_GT(make_read_ahead_options(feed, 0, 1).max_reads, 0);
}

TEST(ReadAheadOptionsTest, DisablesReadAheadWithZero) {
  config::FeedConfig feed;
  feed.read_ahead = 0;
  EXPECT_EQ(make_read_ahead_options(feed, 0, 1).max_reads, 0);
}

}  // namespace
}  // namespace stoker::feed
