#include "daemon/app/validate_batch.h"

#include <cstring>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/load_config.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/support/temporary_directory.h"

namespace stoker::app {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class ValidateBatchTest : public ::testing::Test {
 protected:
  // Opens a dataset with labels from 0 to 3, and a ring with two samples per batch.
  void open(const std::string& source) {
    const auto config = config::parse_config(
        "data: {train: {format: synthetic, num_samples: 8, input_shape: [1], num_classes: 4}}\n"
        "model: {name: mlp, hidden_sizes: []}\ntask: {name: classification}\ntrain: "
        "{micro_batch_size: 2}\n"
        "feed: {producers: " +
            source + "}\n",
        "test.yaml", {});
    ASSERT_TRUE(config.ok()) << config.status().message();
    auto data = data::pipeline::open_dataset("train", config->data, folder_ / "index", {});
    ASSERT_TRUE(data.ok()) << data.status().to_string();
    data_ = *std::move(data);
    auto ring = ring::ShmRing::create(ring::BatchLayout(data_->spec(), 2), {.slots = 2});
    ASSERT_TRUE(ring.ok()) << ring.status().to_string();
    ring_ = *std::move(ring);
    receiver_.emplace(ring_->layout(), ring_->layout(), ring_->slots());
    check_ = validate_batch(*config, data_->info());
  }
  // Publishes a batch with these labels; returns the result of the check.
  Status action(std::vector<int64_t> labels) {
    const auto producer = ring_->add_producer("test");
    EXPECT_TRUE(producer.ok());
    const auto claim = ring_->claim(*producer, 30s);
    EXPECT_TRUE(claim.ok());
    for (size_t row = 0; row < labels.size(); ++row)
      std::memcpy(ring_->layout().row(claim->slot, 1, row).data(), &labels[row],
                  sizeof labels[row]);
    EXPECT_TRUE(ring_->publish(*producer, *claim));
    const auto batch = ring_->pop(30s);
    EXPECT_TRUE(batch.ok());
    Status status = check_(receiver_->receive(*batch));
    ring_->release(batch->ticket);
    return status;
  }

  const test::TemporaryDirectory folder_;
  std::unique_ptr<data::Dataset> data_;
  std::unique_ptr<ring::ShmRing> ring_;
  std::optional<feed::BatchReceiver> receiver_;
  std::function<Status(const feed::ReceivedBatch&)> check_;
};

TEST_F(ValidateBatchTest, ReportsOverwrittenBatchOfInternalWorkers) {
  open("internal");
  ASSERT_TRUE(check_);
  EXPECT_TRUE(action({0, 3}).ok());
  const Status rejected = action({0, -7});
  EXPECT_EQ(rejected.code(), StatusCode::kCorrupt);
  EXPECT_THAT(rejected.message(), HasSubstr("ticket 1, row 1: label -7: there are 4"));
  EXPECT_THAT(rejected.message(), HasSubstr("overwrote the ring"));
}

TEST_F(ValidateBatchTest, ReportsTicketAndRowOfInvalidExternalLabel) {
  open("external");
  ASSERT_TRUE(check_);
  EXPECT_TRUE(action({0, 3}).ok());
  const Status rejected = action({0, 4});
  EXPECT_EQ(rejected.code(), StatusCode::kCorrupt);
  EXPECT_THAT(rejected.message(), HasSubstr("ticket 1 with invalid row 1: label 4: there are 4"));
}

}  // namespace
}  // namespace stoker::app
