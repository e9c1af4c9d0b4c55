// The sample plan of a run from configuration and data, and the weights snapshots of a run.
#include "shared/feed/make_sample_plan.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/feed/fake_dataset.h"
#include "tests/support/temporary_directory.h"

namespace stoker::feed {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MakeSamplePlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.data["train"].source = config::SyntheticDataset{};
    config_.train.micro_batch_size = 4;
  }

  void write_weights(const std::string& text) {
    config_.data["train"].sample_weights_path = directory_ / "weights.txt";
    std::ofstream(directory_ / "weights.txt") << text;
  }
  // As stokerd does when it starts from this ticket.
  void start_at(uint64_t ticket, const std::string& weights) {
    write_weights(weights);
    const auto read = read_sample_weights(config_, data_);
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    const Status loaded = snapshot_sample_weights(*read, directory_.path(), ticket);
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  }
  std::vector<double> kept_for(uint64_t ticket) const {
    const auto loaded = load_sample_weights(config_, directory_.path(), ticket);
    return loaded.ok() ? loaded->at("train") : std::vector<double>();
  }

  const test::TemporaryDirectory directory_;
  config::Config config_;
  FakeDataset data_{3};
};

TEST_F(MakeSamplePlanTest, DerivesOptionsFromConfig) {
  config_.run.seed = 42;
  config_.feed.shuffle = config::ShuffleMode::kBlock;
  config_.feed.shuffle_block_size = 77;
  config_.feed.last_batch = config::LastBatchPolicy::kPad;
  config_.data["train"].repeat = 5;
  const auto options = make_plan_options(config_, data_, {});
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_EQ(options->size, 3u);
  EXPECT_EQ(options->batch, 4u);
  EXPECT_EQ(options->seed, 42u);
  EXPECT_EQ(options->shuffle, config::ShuffleMode::kBlock);
  EXPECT_EQ(options->window, 77u);
  EXPECT_EQ(options->last_batch, config::LastBatchPolicy::kPad);
  EXPECT_EQ(options->world, 1u);
  ASSERT_EQ(options->datasets.size(), 1u);
  EXPECT_EQ(options->datasets[0].repeat, 5u);
  EXPECT_THAT(options->shard_ends, IsEmpty());
}

TEST_F(MakeSamplePlanTest, UsesShardsOfDataWithShardShuffle) {
  config_.feed.shuffle = config::ShuffleMode::kShards;
  config_.feed.shuffle_open_shards = 2;
  const auto options = make_plan_options(config_, data_, {});
  EXPECT_THAT(options->shard_ends, ElementsAre(3));
  EXPECT_EQ(options->shards_open, 2u);
}

TEST_F(MakeSamplePlanTest, RequiresOneBatchPerEpochWithDrop) {
  config_.feed.last_batch = config::LastBatchPolicy::kDrop;
  const auto options = make_plan_options(config_, data_, {});
  EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(options.status().message(),
              HasSubstr("a whole epoch of 3 samples, fewer than the 4"));
  config_.data["train"].repeat = 2;
  EXPECT_TRUE(make_plan_options(config_, data_, {}).ok());
}

TEST_F(MakeSamplePlanTest, RejectsOtherNumberOfDatasets) {
  config_.data["train"].source = config::Concat{{"a", "b"}};
  config_.data["a"] = config_.data["b"] = {};
  EXPECT_EQ(make_plan_options(config_, data_, {}).status().code(), StatusCode::kMismatch);
  EXPECT_EQ(read_sample_weights(config_, data_).status().code(), StatusCode::kMismatch);
  config_.data["train"].source = config::Mixture{{{"a", 0.5}, {"b", 0.5}}};
  EXPECT_EQ(make_plan_options(config_, data_, {}).status().code(), StatusCode::kMismatch);
}

TEST_F(MakeSamplePlanTest, UsesDatasetWeightsAsMixtureShares) {
  config_.data["train"].source = config::Mixture{{{"a", 0.25}}};
  config_.data["a"] = {};
  const auto options = make_plan_options(config_, data_, {});
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  ASSERT_EQ(options->datasets.size(), 1u);
  EXPECT_EQ(options->datasets[0].weight, 0.25);
}

TEST_F(MakeSamplePlanTest, ReportsKeyOfMismatchedWeights) {
  write_weights("1 2");
  const auto two = read_sample_weights(config_, data_);
  EXPECT_EQ(two.status().code(), StatusCode::kMismatch);
  EXPECT_THAT(two.status().message(), HasSubstr("data.train.sample_weights_path: "));
  EXPECT_EQ(make_plan_options(config_, data_, {{"train", {1, 2}}}).status().code(),
            StatusCode::kMismatch);
  EXPECT_EQ(make_plan_options(config_, data_, {}).status().code(), StatusCode::kMismatch);
}

TEST_F(MakeSamplePlanTest, UsesWeightsSnapshotWhenFileChanges) {
  start_at(0, "0 0 1");
  write_weights("1 0 0");
  const auto plan = load_sample_plan(config_, data_, directory_.path(), kLatestTicket);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  for (uint64_t row = 0; row < 4; ++row) EXPECT_EQ(plan->at(5, row).sample, 2u);
}

TEST_F(MakeSamplePlanTest, AppliesNewWeightsFromStartTicket) {
  start_at(0, "0 0 1");
  start_at(100, "0 0 1");  // unchanged: no new snapshot
  start_at(200, "0 1 0");
  EXPECT_THAT(kept_for(0), ElementsAre(0, 0, 1));
  EXPECT_THAT(kept_for(199), ElementsAre(0, 0, 1));
  EXPECT_THAT(kept_for(200), ElementsAre(0, 1, 0));
  EXPECT_THAT(kept_for(kLatestTicket), ElementsAre(0, 1, 0));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "train.sample_weights.100"));
}

TEST_F(MakeSamplePlanTest, DiscardsLaterWeightsWhenRunResumesEarlier) {
  start_at(0, "0 0 1");
  start_at(200, "0 1 0");
  start_at(150, "1 0 0");
  EXPECT_THAT(kept_for(149), ElementsAre(0, 0, 1));
  EXPECT_THAT(kept_for(150), ElementsAre(1, 0, 0));
  EXPECT_THAT(kept_for(kLatestTicket), ElementsAre(1, 0, 0));
  start_at(0, "0 1 0");
  EXPECT_THAT(kept_for(150), ElementsAre(0, 1, 0));
}

TEST_F(MakeSamplePlanTest, ReportsCorruptSnapshotToWorkersAndRebuildsOnStart) {
  start_at(0, "0 0 1");
  std::ofstream(directory_ / "train.sample_weights.0", std::ios::app) << "x";
  EXPECT_EQ(load_sample_weights(config_, directory_.path(), 5).status().code(),
            StatusCode::kCorrupt);
  start_at(10, "0 0 1");
  EXPECT_THAT(kept_for(10), ElementsAre(0, 0, 1));
}

TEST_F(MakeSamplePlanTest, ReportsNotFoundForTicketBeforeFirstSnapshot) {
  start_at(10, "0 0 1");
  const auto loaded = load_sample_weights(config_, directory_.path(), 9);
  EXPECT_EQ(loaded.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(loaded.status().message(),
              HasSubstr("no sample weights of data.train are stored for ticket 9"));
}

}  // namespace
}  // namespace stoker::feed
