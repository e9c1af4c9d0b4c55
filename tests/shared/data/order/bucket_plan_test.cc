// Batches of sequences of similar length.
#include "shared/data/order/bucket_plan.h"

#include <map>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/data/order/sample_plan.h"
#include "tests/shared/data/sequence_test_data.h"

namespace stoker::data::order {
namespace {

using config::LastBatchPolicy;
using config::ShuffleMode;
using ::testing::ElementsAre;
using testing::SequenceTestData;

class BucketPlanTest : public ::testing::Test {
 protected:
  SamplePlan plan(const std::vector<uint64_t>& sizes, PlanOptions options) {
    const auto data = SequenceTestData::of_sizes(sizes);
    std::vector<int64_t> borders;
    for (size_t i = 0; i < sizes.size(); ++i) borders.push_back(static_cast<int64_t>(i) + 1);
    buckets_ = std::make_shared<const LengthBuckets>(data, borders);
    for (uint64_t sample = 0; sample < data.size(); ++sample)
      length_.push_back(data.length(sample));
    options.size = data.size();
    options.maybe_buckets = buckets_;
    return SamplePlan(options);
  }
  uint64_t padded_to(const SamplePlan& plan, uint64_t ticket) const {
    return buckets_->buckets()[plan.bucket_of(ticket)].length;
  }

  std::shared_ptr<const LengthBuckets> buckets_;
  std::vector<uint64_t> length_;
};

TEST(LengthBucketsTest, AssignsSampleToFirstBucketThatFits) {
  const SequenceTestData data(10, {3, 4, 10, 1, 5, 3});
  const LengthBuckets buckets(data, std::vector<int64_t>{3, 4, 7, 10});
  ASSERT_EQ(buckets.buckets().size(), 4u);
  std::vector<uint64_t> lengths, sizes;
  for (const auto& bucket : buckets.buckets()) {
    lengths.push_back(bucket.length);
    sizes.push_back(bucket.size);
  }
  EXPECT_THAT(lengths, ElementsAre(3, 4, 7, 10));
  EXPECT_THAT(sizes, ElementsAre(3, 1, 1, 1));
  EXPECT_EQ(buckets.sample(0, 0), 0u);
  EXPECT_EQ(buckets.sample(0, 1), 3u);
  EXPECT_EQ(buckets.sample(0, 2), 5u);
  EXPECT_EQ(buckets.sample(3, 0), 2u);
}

TEST(LengthBucketsTest, EndsAtMaxLengthWithoutEmptyBuckets) {
  const LengthBuckets buckets(SequenceTestData(10, {1, 9, 2}), std::vector<int64_t>{2, 4, 20});
  ASSERT_EQ(buckets.buckets().size(), 2u);
  EXPECT_EQ(buckets.buckets()[0].length, 2u);
  EXPECT_EQ(buckets.buckets()[1].length, 10u);
}

TEST(LengthBucketsTest, ReportsPaddingRatio) {
  const LengthBuckets buckets(SequenceTestData(10, {1, 9, 2}), std::vector<int64_t>{2});
  EXPECT_DOUBLE_EQ(buckets.padding(), 1 - 12.0 / 14);
  EXPECT_DOUBLE_EQ(buckets.padding_without(), 1 - 12.0 / 30);
}

// ---- Sample selection

TEST_F(BucketPlanTest, FillsBatchFromOneBucket) {
  for (const ShuffleMode shuffle : {ShuffleMode::kFull, ShuffleMode::kNone})
    for (const LastBatchPolicy last :
         {LastBatchPolicy::kCarryOver, LastBatchPolicy::kDrop, LastBatchPolicy::kPad}) {
      length_.clear();
      const SamplePlan plan =
          this->plan({17, 4, 30}, {.batch = 4, .shuffle = shuffle, .last_batch = last});
      for (uint64_t ticket = 0; ticket < 200; ++ticket)
        for (uint64_t row = 0; row < 4; ++row)
          ASSERT_EQ(length_[plan.at(ticket, row).sample], padded_to(plan, ticket));
    }
}

// For many sizes, including buckets that are smaller than a batch.
TEST_F(BucketPlanTest, UsesEverySampleOncePerEpochWithCarryOver) {
  const std::vector<std::vector<uint64_t>> all{{17, 4, 30}, {1, 1, 1}, {2, 0, 3, 1},    {64},
                                               {5, 100},    {1},       {3, 1, 40, 2, 9}};
  for (const auto& sizes : all)
    for (const uint64_t batch : {1, 3, 8, 16}) {
      const SamplePlan plan = this->plan(sizes, {.batch = batch, .seed = batch});
      std::map<std::pair<uint64_t, uint64_t>, int> items;  // (pass, sample)
      uint64_t samples = buckets_->samples();
      constexpr uint64_t kEpochs = 12;
      uint64_t ticket = 0;
      for (; plan.epoch_of(ticket) < kEpochs + batch; ++ticket)
        for (uint64_t row = 0; row < batch; ++row) {
          const PlannedSample planned = plan.at(ticket, row);
          ASSERT_LE(planned.dataset_epoch, plan.epoch_of(ticket))
              << "no sample comes before its epoch";
          ++items[{planned.dataset_epoch, planned.sample}];
        }
      // The remaining samples of a pass are used at the latest after as many passes as a batch has
      // rows.
      for (uint64_t dataset_epoch = 0; dataset_epoch < kEpochs; ++dataset_epoch)
        for (uint64_t sample = 0; sample < samples; ++sample)
          ASSERT_EQ((items[{dataset_epoch, sample}]), 1)
              << dataset_epoch << ' ' << sample << " batch " << batch;
      // The total equals that of the epochs, except for less than one batch per bucket.
      const uint64_t epochs = plan.epoch_of(ticket);
      EXPECT_LE(ticket * batch, epochs * samples);
      EXPECT_GT(ticket * batch + buckets_->buckets().size() * batch, epochs * samples);
    }
}

TEST_F(BucketPlanTest, DropsDifferentSamplesPerEpochWithoutRepetition) {
  const SamplePlan plan = this->plan({10, 23}, {.batch = 4, .last_batch = LastBatchPolicy::kDrop});
  std::set<uint64_t> ever;
  for (uint64_t epoch = 0; epoch < 40; ++epoch) {
    std::set<uint64_t> seen;
    for (uint64_t ticket = epoch * 7; ticket < (epoch + 1) * 7; ++ticket) {
      ASSERT_EQ(plan.epoch_of(ticket), epoch);
      for (uint64_t row = 0; row < 4; ++row)
        ASSERT_TRUE(seen.insert(plan.at(ticket, row).sample).second);
    }
    EXPECT_EQ(seen.size(), 28u);
    ever.merge(seen);
  }
  EXPECT_EQ(ever.size(), 33u);
}

TEST_F(BucketPlanTest, FillsLastBatchFromItsBucketWithPad) {
  const SamplePlan plan = this->plan({2, 10}, {.batch = 4, .last_batch = LastBatchPolicy::kPad});
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    std::map<uint64_t, int> items;
    for (uint64_t ticket = epoch * 4; ticket < (epoch + 1) * 4; ++ticket) {
      ASSERT_EQ(plan.epoch_of(ticket), epoch);
      for (uint64_t row = 0; row < 4; ++row) ++items[plan.at(ticket, row).sample];
    }
    EXPECT_EQ(items.size(), 12u);
    int twice = 0;
    for (const auto& [sample, count] : items) {
      EXPECT_LE(count, 2);
      twice += count - 1;
    }
    EXPECT_EQ(twice, 4);
  }
}

TEST_F(BucketPlanTest, OrdersSamplesByBucketWithoutShuffle) {
  const SamplePlan plan = this->plan({2, 4}, {.batch = 2, .shuffle = ShuffleMode::kNone});
  // Lengths 1 2 1 2 2 2: samples 0 and 2 are short.
  std::vector<uint64_t> order;
  for (uint64_t ticket = 0; ticket < 3; ++ticket)
    for (uint64_t row = 0; row < 2; ++row) order.push_back(plan.at(ticket, row).sample);
  EXPECT_THAT(order, ElementsAre(0, 2, 1, 3, 4, 5));
}

TEST_F(BucketPlanTest, MixesBucketsDifferentlyPerEpochWithShuffle) {
  const SamplePlan plan = this->plan({400, 400}, {.batch = 4});
  std::vector<uint64_t> first, second;
  int changes = 0;
  for (uint64_t ticket = 0; ticket < 200; ++ticket) {
    first.push_back(plan.at(ticket, 0).sample);
    second.push_back(plan.at(200 + ticket, 0).sample);
    changes += ticket > 0 && plan.bucket_of(ticket) != plan.bucket_of(ticket - 1) ? 1 : 0;
  }
  EXPECT_NE(first, second);
  EXPECT_GT(changes, 70) << "of about 100";
  EXPECT_LT(changes, 130);
}

// ---- Any ticket and rank

TEST_F(BucketPlanTest, ComputesAnyTicketDirectly) {
  for (const uint64_t batch : {1, 7, 64}) {
    const SamplePlan plan = this->plan({1000, 3, 417, 50}, {.batch = batch, .seed = 3});
    for (const uint64_t far : {1'000'000'000'000ull, 1'000'000'007'777ull}) {
      const uint64_t epoch = plan.epoch_of(far);
      // An epoch has 1470 samples, so the epoch is known to within one batch per bucket.
      const double expected = static_cast<double>(far) * static_cast<double>(batch) / 1470;
      EXPECT_NEAR(static_cast<double>(epoch), expected,
                  2 + 4.0 * static_cast<double>(batch) / 1470);
      EXPECT_GE(plan.epoch_of(far + 1), epoch);
      EXPECT_LE(plan.at(far, 0).dataset_epoch, epoch);
    }
  }
}

TEST_F(BucketPlanTest, UsesEverySampleOncePerEpochAtLargeTickets) {
  const SamplePlan plan = this->plan({37, 11}, {.batch = 4, .seed = 2});
  uint64_t ticket = 1'000'000'000'000;
  const uint64_t epoch = plan.epoch_of(ticket) + 1;
  while (plan.epoch_of(ticket) < epoch) ++ticket;
  std::map<std::pair<uint64_t, uint64_t>, int> items;
  for (; plan.epoch_of(ticket) < epoch + 6; ++ticket)
    for (uint64_t row = 0; row < 4; ++row) {
      const PlannedSample planned = plan.at(ticket, row);
      ++items[{planned.dataset_epoch, planned.sample}];
    }
  for (uint64_t dataset_epoch = epoch; dataset_epoch < epoch + 4; ++dataset_epoch)
    for (uint64_t sample = 0; sample < 48; ++sample)
      ASSERT_EQ((items[{dataset_epoch, sample}]), 1) << dataset_epoch - epoch << ' ' << sample;
}

TEST_F(BucketPlanTest, DoesNotOverflowAtLastTicket) {
  const SamplePlan plan = this->plan({1, 2}, {.batch = 4});
  const uint64_t last = (uint64_t{1} << 60) - 1;
  EXPECT_GE(plan.epoch_of(last), last * 4 / 3);
  EXPECT_LE(plan.epoch_of(last), (last + 2) / 3 * 4 + 5);
  EXPECT_LT(plan.at(last, 3).sample, 3u);
}

TEST_F(BucketPlanTest, SplitsBatchOfOneBucketBetweenRanks) {
  PlanOptions options{.batch = 12, .seed = 5};
  const SamplePlan one = plan({40, 25, 7}, options);
  options.batch = 4;
  options.world = 3;
  for (options.rank = 0; options.rank < 3; ++options.rank) {
    const SamplePlan range = plan({40, 25, 7}, options);
    for (uint64_t ticket = 0; ticket < 100; ++ticket) {
      ASSERT_EQ(range.bucket_of(ticket), one.bucket_of(ticket));
      for (uint64_t row = 0; row < 4; ++row)
        ASSERT_EQ(range.at(ticket, row).sample, one.at(ticket, options.rank * 4 + row).sample);
    }
  }
}

// ---- Replacement samples

TEST_F(BucketPlanTest, SelectsReplacementsFromSameBucketThenShorter) {
  const SamplePlan plan = this->plan({3, 4, 5}, {.batch = 2});
  for (uint64_t ticket = 0; ticket < 30; ++ticket) {
    const uint64_t length = padded_to(plan, ticket);
    std::set<uint64_t> tried{plan.at(ticket, 1).sample};
    uint64_t fitting = 0;
    for (const uint64_t each : length_) fitting += each <= length ? 1 : 0;
    for (uint64_t attempt = 1; attempt < fitting; ++attempt) {
      const PlannedSample other = plan.replacement(ticket, 1, attempt);
      EXPECT_LE(length_[other.sample], length) << "it must fit";
      EXPECT_TRUE(tried.insert(other.sample).second) << ticket << ' ' << attempt;
    }
  }
}

// A version with another order could not resume runs of earlier versions.
TEST_F(BucketPlanTest, MatchesRecordedOrder) {
  const SamplePlan plan = this->plan({7, 0, 12, 3}, {.batch = 4, .seed = 42});
  std::vector<uint64_t> found;
  for (const uint64_t ticket : {0ull, 1ull, 5ull, 1'000'000'000ull})
    for (uint64_t row = 0; row < 4; ++row) found.push_back(plan.at(ticket, row).sample);
  EXPECT_THAT(found, ElementsAre(6, 13, 15, 11, 1, 18, 21, 7, 3, 0, 9, 0, 8, 2, 2, 5));
}

}  // namespace
}  // namespace stoker::data::order
