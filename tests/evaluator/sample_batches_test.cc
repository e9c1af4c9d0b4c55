#include "evaluator/sample_batches.h"

#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/data/dataset_decorator.h"
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
    uint64_t position = 0, num_padded = 0;
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
          ++num_padded;
          EXPECT_EQ((*batch)[0][row][places - 1].item<float>(), 0.0F) << "nothing stale";
        }
      }
    }
    EXPECT_EQ(seen.size(), data.size());
    EXPECT_GT(num_padded, 0u);
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

// Samples whose reads fail.
class FailingDataset final : public data::DatasetDecorator {
 public:
  FailingDataset(const data::Dataset& data, std::set<uint64_t> failing)
      : DatasetDecorator(data), failing_(std::move(failing)) {}
  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    ++reads_;
    if (failing_.contains(sample)) return Status(StatusCode::kCorrupt, std::to_string(sample));
    return inner().read(sample, random_key, outputs);
  }
  uint64_t take_reads() const { return std::exchange(reads_, 0); }

 private:
  const std::set<uint64_t> failing_;
  mutable uint64_t reads_ = 0;
};

TEST(SampleBatchesTest, ExcludesQuarantinedSamplesFromTheTimeTheyAreFound) {
  const auto data = SequenceTestData::of_sizes({0, 0, 10});
  const FailingDataset failing(data, {1, 4, 5, 8});
  SampleBatches batches(failing, first_samples(10, data), 2, {},
                        [](uint64_t sample) { return sample != 2; });
  SampleBatches::Memory memory;
  for (int evaluation = 0; evaluation < 2; ++evaluation) {
    std::vector<uint64_t> read;
    ASSERT_EQ(batches.size(), 5u);
    for (size_t number = 0; number < batches.size(); ++number) {
      const auto batch = batches.read(number, memory);
      ASSERT_TRUE(batch.ok());
      if (number == 2) {
        EXPECT_TRUE(batch->empty());
        continue;
      }
      for (int64_t row = 0; row < (*batch)[0].size(0); ++row)
        read.push_back(static_cast<uint64_t>((*batch)[0][row][0].item<float>()));
    }
    EXPECT_THAT(read, ElementsAre(0, 2, 3, 6, 7, 9));
    EXPECT_EQ(batches.quarantined(), 4u);
    for (size_t i = 0; i < read.size(); ++i) EXPECT_EQ(batches.evaluated_sample(i), read[i]);
    EXPECT_EQ(failing.take_reads(), evaluation == 0 ? 10u : 6u) << "each sample is read once";
  }
}

TEST(SampleBatchesTest, ReportsErrorOfSampleThatIsNotQuarantined) {
  const auto data = SequenceTestData::of_sizes({0, 0, 4});
  const FailingDataset failing(data, {2});
  SampleBatches batches(failing, first_samples(4, data), 4, {}, [](uint64_t) { return false; });
  SampleBatches::Memory memory;
  EXPECT_EQ(batches.read(0, memory).status().message(), "2");
  EXPECT_EQ(batches.quarantined(), 0u);
}

}  // namespace
}  // namespace stoker::evaluator
