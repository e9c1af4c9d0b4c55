#include "evaluator/sample_batches.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/sequence_test_data.h"

namespace stoker::evaluator {
namespace {

using data::testing::SequenceTestData;
using ::testing::ElementsAre;

Subset first_samples(uint64_t samples, const data::Dataset& data) {
  return {samples, data.size(), /*is_spread=*/false};
}

TEST(SampleBatchesTest, ReturnsBatchesInOrderWithSmallerLast) {
  const auto data = SequenceTestData::of_sizes({0, 0, 5});
  SampleBatches batches(data, first_samples(5, data), 2, {});
  SampleBatches::Memory memory;
  ASSERT_EQ(batches.size(), 3u);
  for (size_t number = 0; number < 3; ++number) {
    const auto batch = batches.read(number, memory);
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ((*batch)[0].sizes(), (std::vector<int64_t>{number == 2 ? 1 : 2, 3}));
    EXPECT_EQ((*batch)[0][0][0].item<float>(), static_cast<float>(2 * number));
    EXPECT_EQ(batches.sample_at(batches.first_position(number)), 2 * number);
  }
}

TEST(SampleBatchesTest, ReturnsEachSampleOncePaddedToItsBucket) {
  const auto data = SequenceTestData::of_sizes({4, 7, 0, 3, 2});
  const std::vector<int64_t> buckets{2, 4};
  for (const uint64_t size : {1, 3, 100}) {
    SampleBatches batches(data, first_samples(data.size(), data), size, buckets);
    SampleBatches::Memory memory;
    std::set<uint64_t> seen;
    uint64_t position = 0;
    for (size_t number = 0; number < batches.size(); ++number) {
      const auto batch = batches.read(number, memory);
      ASSERT_TRUE(batch.ok());
      EXPECT_EQ(batches.first_position(number), position);
      const int64_t places = (*batch)[0].size(1);
      for (int64_t row = 0; row < (*batch)[0].size(0); ++row, ++position) {
        const uint64_t sample = batches.sample_at(position);
        EXPECT_TRUE(seen.insert(sample).second);
        EXPECT_EQ((*batch)[0][row][0].item<float>(), static_cast<float>(sample));
        EXPECT_EQ((*batch)[1][row].item<int64_t>(), static_cast<int64_t>(data.length(sample)));
        const uint64_t length = data.length(sample);
        EXPECT_EQ(places, length <= 2 ? 2 : length <= 4 ? 4 : 5);
        if (static_cast<int64_t>(length) < places) {
          EXPECT_EQ((*batch)[0][row][places - 1].item<float>(), 0.0F) << "nothing stale";
        }
      }
    }
    EXPECT_EQ(seen.size(), data.size());
  }
}

TEST(SampleBatchesTest, ReturnsOnlySamplesOfSubset) {
  const auto data = SequenceTestData::of_sizes({3, 3});
  const std::vector<int64_t> buckets{1};
  SampleBatches batches(data, first_samples(3, data), 2, buckets);
  SampleBatches::Memory memory;
  std::vector<uint64_t> order;
  for (size_t number = 0; number < batches.size(); ++number)
    for (int64_t row = 0; row < (*batches.read(number, memory))[0].size(0); ++row)
      order.push_back(batches.sample_at(order.size()));
  EXPECT_THAT(order, ElementsAre(0, 2, 1)) << "lengths 1 2 1";
}

}  // namespace
}  // namespace stoker::evaluator
