// Bucketed sequences through the ring: each batch has the length of its bucket, and its padding is
// clean regardless of the previous content of the slot.
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/config/load_config.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/feed/batch_shapes.h"
#include "shared/feed/make_sample_plan.h"
#include "shared/feed/worker_pool.h"
#include "tests/support/temporary_directory.h"

namespace stoker::feed {
namespace {

using namespace std::chrono_literals;
constexpr auto kPopTimeout = 60s;
constexpr uint64_t kBatchSize = 3;

class BucketFeedTest : public ::testing::Test {
 protected:
  // Sample i consists of i mod 9 + 1 tokens with value i + 1.
  void open(const std::string& buckets, uint64_t slots, const std::string& feed = "") {
    std::string lines;
    for (int i = 0; i < 40; ++i) {
      std::string list;
      for (int index = 0; index <= i % 9; ++index)
        list += (index == 0 ? "" : ", ") + std::to_string(i + 1);
      lines += "{\"ids\": [" + list + "], \"tags\": [" + list + "]}\n";
    }
    ASSERT_TRUE(write_file_atomically(default_file_system(), scratch_ / "data.jsonl", lines).ok());
    const auto config = config::parse_config(
        "data: {train: {format: jsonl, path: " + (scratch_ / "data.jsonl") +
            ", fields: {input_ids: ids, labels: tags}, sequence: {max_length: 9}}}\n"
            "feed: {bucket_boundaries: " +
            buckets + feed + "}\ntrain: {micro_batch_size: 3}\nmodel: {name: gpt}\n",
        "test.yaml", {});
    ASSERT_TRUE(config.ok()) << config.status().message();
    auto data = data::pipeline::open_dataset("train", config->data, scratch_ / "index", {});
    ASSERT_TRUE(data.ok()) << data.status().message();
    data_ = *std::move(data);
    const auto options = make_plan_options(*config, *data_, {});
    ASSERT_TRUE(options.ok()) << options.status().message();
    plan_.emplace(*options);
    shapes_.emplace(*data_, *plan_);
    ring_ = *ring::ShmRing::create({data_->spec(), kBatchSize}, {.slots = slots});
    std::memset(ring_->payload().data(), 0xee, ring_->payload().size());
  }
  void start(int threads) {
    pool_.emplace(*ring_, *ring_->add_producer("pool"), *data_, *plan_);
    pool_->start(threads, coordinator_);
  }

  template <typename T>
  std::vector<T> values(const ring::ReadyBatch& batch, size_t tensor) const {
    const auto bytes = shapes_->of(batch.ticket).tensor_bytes(batch.slot, tensor);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  void expect_batch(const ring::ReadyBatch& batch, uint64_t places) const {
    const auto tokens = values<int32_t>(batch, 0);
    const auto lengths = values<int64_t>(batch, 1), labels = values<int64_t>(batch, 2);
    ASSERT_EQ(tokens.size(), kBatchSize * places);
    ASSERT_EQ(labels.size(), kBatchSize * places);
    for (uint64_t row = 0; row < kBatchSize; ++row) {
      const uint64_t sample = plan_->at(batch.ticket, row).sample;
      ASSERT_EQ(lengths[row], static_cast<int64_t>(sample % 9 + 1));
      ASSERT_LE(lengths[row], static_cast<int64_t>(places));
      for (uint64_t index = 0; index < places; ++index) {
        const bool is_own = index < sample % 9 + 1;
        EXPECT_EQ(tokens[row * places + index], is_own ? static_cast<int32_t>(sample + 1) : 0)
            << "ticket " << batch.ticket << " row " << row << " place " << index;
        EXPECT_EQ(labels[row * places + index], is_own ? static_cast<int64_t>(sample + 1) : -100);
      }
    }
  }
  uint64_t places(uint64_t ticket) const {
    return static_cast<uint64_t>(shapes_->of(ticket).sample()[0].shape[0]);
  }

  test::TemporaryDirectory scratch_;
  std::unique_ptr<data::Dataset> data_;
  std::optional<data::order::SamplePlan> plan_;
  std::optional<BatchShapes> shapes_;
  std::unique_ptr<ring::ShmRing> ring_;
  std::optional<WorkerPool> pool_;
  Coordinator coordinator_;  // destroyed first: joins the threads
};

TEST_F(BucketFeedTest, PadsBatchToBucketLengthWithoutStaleData) {
  open("[2, 5]", 2);  // few slots, so each holds batches of all lengths
  start(3);
  std::set<uint64_t> lengths;
  for (uint64_t ticket = 0; ticket < 120; ++ticket) {
    const auto batch = ring_->pop(kPopTimeout);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    lengths.insert(places(ticket));
    expect_batch(*batch, places(ticket));
    ring_->release(ticket);
  }
  EXPECT_EQ(lengths, (std::set<uint64_t>{2, 5, 9}));
}

TEST_F(BucketFeedTest, PadsBatchToMaxLengthWithoutBuckets) {
  open("[]", 2);
  start(2);
  for (uint64_t ticket = 0; ticket < 30; ++ticket) {
    const auto batch = ring_->pop(kPopTimeout);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    expect_batch(*batch, 9);
    ring_->release(ticket);
  }
}

TEST_F(BucketFeedTest, PacksBatchFromStartOfSlot) {
  open("[2, 5]", 2);
  for (uint64_t ticket = 0; ticket < 50; ++ticket) {
    const ring::BatchLayout& layout = shapes_->of(ticket);
    EXPECT_EQ(layout.offset(0), 0u);
    EXPECT_EQ(layout.offset(1), (kBatchSize * places(ticket) * 4 + 63) / 64 * 64);
    EXPECT_LE(layout.slot_bytes(), ring_->layout().slot_bytes());
  }
}

TEST_F(BucketFeedTest, RejectsDropWhenBucketIsSmallerThanBatch) {
  // 4 samples of length 9: one batch and one sample left over.
  open("[8]", 2, ", last_batch: drop");
  const auto config = [&](const std::string& batch) {
    return *config::parse_config(
        "data: {train: {format: jsonl, path: " + (scratch_ / "data.jsonl") +
            ", fields: {input_ids: ids}, sequence: {max_length: 9}}}\n"
            "feed: {bucket_boundaries: [8], last_batch: drop}\n"
            "train: {micro_batch_size: " +
            batch + "}\nmodel: {name: gpt}\n",
        "test.yaml", {});
  };
  EXPECT_TRUE(make_plan_options(config("4"), *data_, {}).ok());
  const auto rejected = make_plan_options(config("5"), *data_, {});
  ASSERT_FALSE(rejected.ok());
  EXPECT_EQ(rejected.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(rejected.status().message().find("would never use the 4 samples of up to 9 time steps"),
            std::string::npos)
      << rejected.status().message();
}

}  // namespace
}  // namespace stoker::feed
